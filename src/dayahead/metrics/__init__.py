"""Ranks from scores, metrics from ranks, and the tables that hold both."""
