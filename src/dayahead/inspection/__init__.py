"""A log that nobody has described yet, to a data set file: reads a sample, says what it sees."""
