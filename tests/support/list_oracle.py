"""Metrics of lists from their definitions, in plain Python: an oracle, and the lists for it."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from dayahead.distributed.process import Process, Rank
from dayahead.metrics.lists import KnownItems, Shown
from dayahead.train.list_counts import ListCounts

N_ITEMS = 14
"""Catalogue indices are 2 to 13."""
ALONE = Process(Rank(0, 1), torch.device("cpu"))


@dataclass(frozen=True)
class Lists:
    """Lists of one length, and what came before them."""

    shown: list[list[int]]
    sessions: list[list[int]]
    """Items of each list's session before the target."""
    history: list[list[int]]
    """Earlier sessions."""
    newest: int
    """How many of these, the last ones, are of the newest window."""
    candidates: set[int]

    @property
    def known(self) -> KnownItems:
        has = np.zeros((len(self.history), N_ITEMS), bool)
        for row, session in enumerate(self.history):
            has[row, session] = True
        before = has[: len(has) - self.newest]
        return KnownItems(len(has), has.sum(0), ~before.any(0))

    @property
    def n_items(self) -> int:
        return len(self.candidates.union(*self.shown))

    def counted(
        self, batch_size: int = 3, process: Any = ALONE, length: int | None = None
    ) -> Shown:
        """Count the lists batch by batch, as an evaluation does."""
        counts = ListCounts(length or len(self.shown[0]), process)
        longest = max(map(len, self.sessions), default=0) + 2
        for start in range(0, len(self.shown), batch_size):
            some = slice(start, start + batch_size)
            # After the known items come those that a model must not see.
            rows = [s + [9] * (longest - len(s)) for s in self.sessions[some]]
            n_known = torch.tensor([len(s) for s in self.sessions[some]])
            shown, columns = torch.tensor(self.shown[some]), {"item_id": torch.tensor(rows)}
            counts.add(shown, columns, n_known, torch.ones(len(rows), dtype=torch.bool))
        return counts.joined()


def cut(lists: Lists, k: int) -> list[list[int]]:
    """The first k items of each list."""
    return [each[:k] for each in lists.shown]


def oracle(lists: Lists, k: int) -> dict[str, float]:
    """Every metric by its definition."""
    shown = cut(lists, k)
    places = [item for each in shown for item in each]
    times = sorted(places.count(item) for item in lists.candidates.union(*lists.shown))
    n, total = len(times), len(places)
    has = Counter(item for session in lists.history for item in {*session})
    n_pairs, old = sum(has.values()), lists.history[: len(lists.history) - lists.newest]

    def mean(value):
        return sum(sum(map(value, each)) / len(each) for each in shown) / len(shown)

    return {
        "coverage": len({*places}) / n,
        "gini": sum(abs(a - b) for a in times for b in times) / (2 * n * total),
        "novelty": mean(lambda item: -math.log2(max(1, has[item]) / len(lists.history))),
        "popularity": mean(lambda item: has[item] / n_pairs),
        "new": mean(lambda item: float(not any(item in session for session in old))),
        "own": sum(
            sum(item in own for item in each) / len(each)
            for each, own in zip(shown, lists.sessions, strict=True)
        )
        / len(shown),
    }


@st.composite
def some_lists(draw: st.DrawFn) -> Lists:
    """Lists of 1 to 6 items."""
    items = range(2, N_ITEMS)
    sessions = st.lists(st.sampled_from(items), min_size=1, max_size=4)
    length, n = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    history = draw(st.lists(sessions, min_size=1, max_size=9))
    return Lists(
        shown=[draw(st.permutations(items))[:length] for _ in range(n)],
        sessions=draw(st.lists(sessions, min_size=n, max_size=n)),
        history=history,
        newest=draw(st.integers(0, len(history))),
        candidates=draw(st.sets(st.sampled_from(items))),
    )
