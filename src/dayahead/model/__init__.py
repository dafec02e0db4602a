"""Next-item models: backbones, tasks, losses and baselines."""
