"""Sessions for the memories, by hand and by dice."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dayahead.memory.clicks import Clicks
from dayahead.memory.outline import Positions

HOUR = 3_600_000_000


def clicks(rows, times=None, categories=None):
    """Build rows of items, at these times in hours (else one hour), of these categories (else 0).

    `times` and `categories` are like `rows`: a number, or a tuple of numbers, for each click.
    """
    items = [item for row in rows for item in row]
    hours = [1.0] * len(items) if times is None else [time for row in times for time in row]
    values = [(0,)] * len(items) if categories is None else [v for row in categories for v in row]
    return Clicks(
        np.array(items, np.int64),
        np.rint(np.array(hours, float) * HOUR).astype(np.int64),
        np.array(values, np.int64).reshape(len(items), len(values[0]) if values else 1),
        np.cumsum([0, *map(len, rows)]),
    )


def random_clicks(seed, n_sessions=60, n_items=12, start=0.0, n_columns=1):
    """Sessions of 1 to 7 clicks in an hour from `start`; some items (1) are unknown."""
    dice = np.random.default_rng(seed)
    rows, times, categories = [], [], []
    for _ in range(n_sessions):
        length = dice.integers(1, 8)
        rows.append(dice.integers(1, 2 + n_items, length).tolist())
        times.append((start + np.sort(dice.random(length))).tolist())
        categories.append(dice.integers(0, 3, (length, n_columns)).tolist())
    return clicks(rows, times, categories)


def with_pasts(sessions, seed, n_items=12):
    """Give sessions a past of 0 to 3 clicks, an hour or less before their first one."""
    dice = np.random.default_rng(seed)
    starts = sessions.times[sessions.offsets[:-1]] / HOUR
    lengths = dice.integers(0, 4, len(sessions))
    rows = [dice.integers(1, 2 + n_items, length).tolist() for length in lengths]
    before = [np.sort(dice.random(length)) - 1 for length in lengths]
    times = [(start + hours).tolist() for start, hours in zip(starts, before, strict=True)]
    n_columns = sessions.categories.shape[1]
    categories = [dice.integers(0, 3, (length, n_columns)).tolist() for length in lengths]
    return replace(sessions, past=clicks(rows, times, categories))


def prefixes_of(rows):
    """Return every prefix of rows that another click follows."""
    return rows.prefixes(positions_of(rows))


def positions_of(rows):
    """Return the positions before every click but a row's first."""
    found = [(row, n) for row, length in enumerate(rows.lengths) for n in range(length - 1, 0, -1)]
    return Positions(*np.array(found, np.int64).reshape(-1, 2).T)


def sessions_of(rows):
    """Return each row's (item, hour, categories)."""
    for start, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        yield [
            (int(rows.items[i]), rows.times[i] / HOUR, rows.categories[i].tolist())
            for i in range(start, end)
        ]


seeds = st.integers(0, 2**16)
