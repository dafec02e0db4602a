"""Train a next-item recommender on each day's sessions, be evaluated on the next day's."""

from dayahead.core.openmp import limit_spinning

limit_spinning()  # before torch is loaded
