"""Metrics of lists by RecTools: reads lists as JSON from stdin, writes its figures as JSON.

It runs in RecTools' environment, without ours.
"""

import json
import sys

import pandas as pd
from rectools import Columns
from rectools.metrics import (
    AvgRecPopularity,
    CatalogCoverage,
    MeanInvUserFreq,
)


def table(rows, ranked):
    """A row for each item of each list, with its rank, or once for each item of a session."""
    pairs = [
        (user, item, rank)
        for user, items in enumerate(rows)
        for rank, item in enumerate(items if ranked else sorted(set(items)), start=1)
    ]
    return pd.DataFrame(pairs, columns=[Columns.User, Columns.Item, Columns.Rank])


def figures(given):
    """Return each metric at a cutoff."""
    k = given["k"]
    shown = table(given["shown"], ranked=True)
    before = table(given["history"], ranked=False).drop(columns=Columns.Rank)
    return {
        "coverage": CatalogCoverage(k, normalize=True).calc(shown, given["catalogue"]),
        "novelty": MeanInvUserFreq(k).calc(shown, before),
        "popularity": AvgRecPopularity(k, normalize=True).calc(shown, before),
    }


json.dump([figures(given) for given in json.load(sys.stdin)], sys.stdout)
