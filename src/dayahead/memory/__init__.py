"""Memories of clicks (pairs, items, categories, sessions) and the head that joins them."""
