"""Train a next-item recommender on each day's sessions, be judged on the next day's."""
