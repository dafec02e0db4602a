"""Hyperparameter search: Optuna over DVC experiments."""
