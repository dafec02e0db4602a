"""Names, errors, files and the store: imported by every stage."""
