"""The cache of one clone for others: entries go to and come from a DVC remote."""
