"""Recommendations for live sessions from a saved model."""
