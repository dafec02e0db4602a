"""From a batch to scores over the catalogue: bodies, tasks, loss, and two counted models."""
