"""What the tests of the benchmarks share."""

# Merlin warns when it is first imported, in a test file that would be an error.
