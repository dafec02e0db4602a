"""From sources to batches: download, preprocess, read windows, gather batches."""
