"""The protocol: fit on each window, evaluate on the next."""
