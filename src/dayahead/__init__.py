"""Train a next-item recommender on each day's sessions, be evaluated on the next day's."""

import os

# libgomp reads these once, when torch is loaded. Left to itself it has a waiting thread spin for
# milliseconds, which takes the core from other work: beside it two threads are slower than one.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "100")
