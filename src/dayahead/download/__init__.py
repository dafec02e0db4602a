"""Source files or the generator into data/raw: fetch, verify, convert."""
