"""Paired comparison of two runs."""
