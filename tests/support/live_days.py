"""Days of a site in its official and its live log, with what is ordinary and what is not."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
FAULTS = ("missing", "doubled", "ahead", "behind")


@dataclass(frozen=True)
class Site:
    """What is ordinary at a site."""

    n_sessions: int
    """Of a usual day; days have a quarter less or more, weekends half."""
    sampled: float = 1.0
    """Share of the sessions whose client reports events at all."""
    lost: float = 0.02
    """Share of the events that do not arrive; on some days five times as many."""

    def day(self, number, draw, fault=None, share=0.0):
        """Return the official and the live log of a day, and its span.

        A fault concerns all sessions of one client, which has such a share of them.
        """
        weekday = 0.5 if number % 7 >= 5 else 1.0
        n_sessions = max(20, round(self.n_sessions * weekday * draw.uniform(0.75, 1.25)))
        lengths = draw.geometric(0.25, n_sessions)
        sessions = np.repeat(np.arange(n_sessions), lengths)
        n_events = len(sessions)
        start = number * DAY
        begins = draw.integers(-2 * HOUR, DAY, n_sessions)
        elapsed = np.cumsum(draw.exponential(40 * SECOND, n_events)).astype(int)
        elapsed -= elapsed[np.cumsum(lengths) - lengths][sessions]
        times = start + begins[sessions] + elapsed
        items = draw.zipf(1.3, n_events) % 1000  # popular ones come again within a session
        lost = self.lost * (5 if draw.random() < 0.02 else draw.uniform(0.3, 2))
        reports = draw.random(n_sessions) < self.sampled
        is_live = reports[sessions] & (draw.random(n_events) >= lost)
        is_official = draw.random(n_events) >= 0.005
        of_client = (draw.random(n_sessions) < share)[sessions]
        reported = times + draw.integers(-2 * SECOND, 2 * SECOND, n_events)
        if fault == "missing":
            is_live &= ~of_client
        elif fault in {"ahead", "behind"}:
            reported = reported + np.where(of_client, HOUR if fault == "ahead" else -HOUR, 0)
        # A retry of a report: a thousandth comes twice, of a faulty client all.
        again = is_live & ((draw.random(n_events) < 0.001) | (of_client & (fault == "doubled")))
        rows = np.concatenate([np.flatnonzero(is_live), np.flatnonzero(again)])
        lags = (draw.lognormal(0, 1.5, len(rows)) * SECOND).astype(int)
        pairs = (sessions * 1000 + items).astype(np.uint64)
        owners = sessions.astype(np.uint64)
        happened = pd.DataFrame({"session": owners, "pair": pairs, "time": times})
        live = happened.iloc[rows].assign(time=reported[rows], arrived=times[rows] + lags)
        return happened[is_official], live, (start, start + DAY)
