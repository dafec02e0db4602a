"""Settings of baselines and of the architecture memory, for logs of a few sessions."""

from pathlib import Path

from dayahead.config.loading import read_yaml

NEIGHBOURS = {
    "k": 3,
    "sample_size": 10,
    "position_weight": "quadratic",
    "step_weight": "div",
    "position_scale": 2.0,
    "age_scale": 1.0,
    "distance_scale": 2.0,
    "step_scale": 0.5,
    "idf": 1.0,
    "push_reminders": False,
}
LINEAR = {
    "n_items": 20,
    "regularization": 1.0,
    "similarity_share": 0.5,
    "train_scale": 1.0,
    "predict_scale": 2.0,
    "age_scale": 1.0,
}
MEMORY = read_yaml(Path(__file__).parents[2] / "params.yaml")["memory"] | {
    "n_candidates": 10,
    "head_width": 4,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "batch_size": 8,
    "epochs": 1,
    "first_epochs": 2,
    "n_examples": 100,
    "min_steps": 2,
    "n_replayed": 10,
    "n_latest": 10,
    "n_earlier": 5,
    "n_best": 5,
    "max_sessions": 100,
    "reach": 5,
}
