"""The files in results/: their formats, written by train and read by everyone else."""
