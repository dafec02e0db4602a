"""Statistics of differences over windows and runs, for comparison, nightly and the report."""
