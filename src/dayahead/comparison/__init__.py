"""Runs compared: two settings by a test, several in a table, or on the page of a report."""
