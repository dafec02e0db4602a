"""Names, errors, files and the cache, for all other rooms."""
