"""data/windows: what preprocess writes and train reads."""
