"""Source files or the generator to data/raw: fetch, verify, convert."""
