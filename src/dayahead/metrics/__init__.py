"""Scores of candidates, ranks from scores, and metrics from ranks."""
