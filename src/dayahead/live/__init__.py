"""Clicks that are reported as they happen, and the saved model that counts them."""
