"""Averages over windows, tables and the report."""

import os

# Jupyter's kernels set it for the commands that they start, and matplotlib, which draws SVG here,
# would refuse a backend that is not installed.
os.environ.pop("MPLBACKEND", None)
