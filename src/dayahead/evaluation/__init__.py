"""What a run is worth: ranks into metrics, metrics into averages, reports and comparisons."""
