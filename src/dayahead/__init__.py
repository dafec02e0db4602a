"""Train a next-item recommender on each day's sessions, be evaluated on the next day's."""
