"""Settings of baselines and of the architecture memory, for logs of a few sessions."""

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
    "remind": True,
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
MEMORY = {
    "n_candidates": 10,
    "rank_all": False,
    "head_width": 4,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "batch_size": 8,
    "epochs": 1,
    "first_epochs": 2,
    "n_examples": 100,
    "n_replayed": 10,
    "n_latest": 10,
    "n_earlier": 5,
    "n_best": 5,
    "max_sessions": 100,
    "half_life": 2.0,
    "fade": 0.7,
    "reach": 5,
    "backward": 0.5,
    "sharpness": 3.0,
}
