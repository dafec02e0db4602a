"""Metrics of lists by RecTools: reads lists as JSON from stdin, writes its figures as JSON.

It runs in RecTools' environment, without ours.
"""

import json
import sys

import numpy as np
import pandas as pd
from rectools import Columns
from rectools.metrics import (
    AvgRecPopularity,
    CatalogCoverage,
    IntraListDiversity,
    MeanInvUserFreq,
    PairwiseDistanceCalculator,
    PairwiseHammingDistanceCalculator,
)


def table(rows, ranked):
    """A row for each item of each list, with its rank, or once for each item of a session."""
    pairs = [
        (user, item, rank)
        for user, items in enumerate(rows)
        for rank, item in enumerate(items if ranked else sorted(set(items)), start=1)
    ]
    return pd.DataFrame(pairs, columns=[Columns.User, Columns.Item, Columns.Rank])


class CosineDistances(PairwiseDistanceCalculator):
    """1 - cosine of the items' vectors."""

    def __init__(self, vectors):
        self.vectors = vectors

    def _get_distances_for_item_pairs(self, items_0, items_1):
        a, b = (np.array([self.vectors[str(i)] for i in items]) for items in (items_0, items_1))
        return 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def figures(given):
    """Return each metric at a cutoff."""
    k = given["k"]
    shown = table(given["shown"], ranked=True)
    before = table(given["history"], ranked=False).drop(columns=Columns.Rank)
    features = pd.DataFrame({"value": {int(i): v for i, v in given["attribute"].items()}})
    distance = PairwiseHammingDistanceCalculator(features)
    if given["vectors"] is not None:
        distance = CosineDistances(given["vectors"])
    return {
        "coverage": CatalogCoverage(k, normalize=True).calc(shown, given["catalogue"]),
        "novelty": MeanInvUserFreq(k).calc(shown, before),
        "popularity": AvgRecPopularity(k, normalize=True).calc(shown, before),
        "diversity": IntraListDiversity(k, distance).calc(shown),
    }


json.dump([figures(given) for given in json.load(sys.stdin)], sys.stdout)
