"""Averages over windows, tables and the report."""
