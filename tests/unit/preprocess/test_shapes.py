"""Logs of extreme shapes become the sessions of the row-by-row oracle."""

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from dayahead.core.errors import DayaheadError
from dayahead.preprocess.calendar import MAX_WINDOWS
from dayahead.windows.session_ids import hashed_ids
from support.builders import CALENDAR_WINDOWS, dataset_config, events, instant, window_config
from support.session_windows import closed_windows, written_windows

START = instant("2026-01-01 22:00")
LAST = {"session_id": "last", "user_id": "last", "item_id": 1}
IDS = [
    "\u65e5\u672c",
    "a b",
    "",
    "'",
    "a:b",
    "\u00e9",
    "e\u0301",
    "0",
    "00",
    "\U0001f600",
    "x" * 500,
]


def log(
    n, *, user=lambda n: n % 7, session=lambda n: n // 3, item=lambda n: n % 11, time=lambda n: n
):
    """Rows with users, sessions, items and minutes after START as functions of their number."""
    return [
        {
            "session_id": f"s{session(row)}" if isinstance(session(row), int) else session(row),
            "user_id": None if user(row) is None else f"u{user(row)}",
            "item_id": item(row),
            "event_time": START + timedelta(minutes=time(row)),
        }
        for row in range(n)
    ]


SHAPES = {
    "one event": lambda rng: log(1),
    "one session": lambda rng: log(50, session=lambda n: 0),
    "one user": lambda rng: log(90, user=lambda n: 0, time=lambda n: 17 * n),
    "one item": lambda rng: log(90, item=lambda n: 5),
    "one event a session": lambda rng: log(60, session=lambda n: n),
    "one time": lambda rng: log(90, time=lambda n: 0),
    "one time a session": lambda rng: log(90, time=lambda n: 40 * (n // 3)),
    "reversed": lambda rng: log(90, time=lambda n: -9 * n),
    "shuffled": lambda rng: rng.sample(log(90, time=lambda n: 30 * n), 90),
    "over midnight": lambda rng: log(60, session=lambda n: n % 2, time=lambda n: 118 + n // 10),
    "every row twice": lambda rng: [row for row in log(40, time=lambda n: 20 * n) for _ in (1, 2)],
    "days apart": lambda rng: log(9, session=lambda n: n // 3, time=lambda n: 60 * 24 * n),
    "years apart": lambda rng: log(9, time=lambda n: n + 60 * 24 * 400 * (n // 3)),
    "microseconds": lambda rng: log(90, time=lambda n: n / 6e7),
    "before 1970": lambda rng: log(60, time=lambda n: 30 * n - 40_000_000),
    "no user": lambda rng: log(60, user=lambda n: None),
    "few users": lambda rng: log(60, user=lambda n: None if n % 3 else 1, time=lambda n: 9 * n),
    "odd ids": lambda rng: log(77, session=lambda n: IDS[n % 11], time=lambda n: 5 * n),
    "two users a session": lambda rng: log(60, user=lambda n: n % 2, session=lambda n: n // 6),
    "a long session": lambda rng: log(3_000, session=lambda n: n // 2_990, time=lambda n: n / 50),
    "each item once": lambda rng: log(20_000, item=lambda n: n, time=lambda n: n / 7),
    "huge items": lambda rng: log(60, item=lambda n: (-1) ** n * (2**63 - 1 - n % 5)),
    "random": lambda rng: log(
        rng.randint(2, 200),
        user=lambda n: rng.choice([None, 0, 1, 2]),
        session=lambda n: rng.randint(0, 20),
        item=lambda n: rng.randint(0, 4),
        time=lambda n: rng.randint(0, 3_000) / rng.choice([1, 60]),
    ),
}


def settings(rng):
    """A data set and windows."""
    is_by_gap = rng.random() < 0.4
    dataset = dataset_config(
        columns={"user_id": "user_id", **({"session_id": None} if is_by_gap else {})},
        gap_minutes=rng.choice([5.0, 30.0]) if is_by_gap else None,
        repeats={
            "rule": rng.choice(["keep", "drop_consecutive", "drop_all"]),
            "scope": rng.choice(["session", "user"]),
        },
        min_length=rng.choice([2, 3]),
        max_length=rng.choice([3, 20]),
        truncate=rng.choice(["first", "last"]),
    )
    window = {
        **rng.choice(CALENDAR_WINDOWS),
        "overrun": rng.choice(["cut", "keep"]),
        "grace": rng.choice([0, 30]),
    }
    return dataset, window


def with_read_ids(store, sessions):
    """Sessions by the ids that a window folder gives them: hashed where they hold a user's id."""
    if store.manifest.hash_seed is None:
        return sessions
    ids = hashed_ids(pa.array(sessions, pa.string()), store.manifest.hash_seed).to_pylist()
    return dict(zip(ids, sessions.values(), strict=True))


def check(run, shape, seed):
    """Return whether there was a session at all."""
    rng = random.Random(f"{shape} {seed}")
    dataset, window = settings(rng)
    rows = SHAPES[shape](rng)
    end = max(row["event_time"] for row in rows) + timedelta(days=2)
    table = events([*rows, {**LAST, "event_time": end}])
    expected = closed_windows(table, dataset, window_config(**window))
    read = table if dataset.sessions.gap_minutes is None else table.drop_columns(["session_id"])
    parts = rng.choice([1, 3])
    try:
        store = run(read, dataset, log_end=None, parts=parts, **window)
    except DayaheadError as error:
        # Sessions that all go on past the end of their window train nothing; years are too many
        # minutes.
        message = str(error)
        is_known = "no train session" in message or f"expected at most {MAX_WINDOWS:,}" in message
        assert not any(expected.values()) or is_known
        return False
    assert written_windows(store) == {
        name: with_read_ids(store, found) for name, found in expected.items() if found
    }
    return True


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_of_any_shape_becomes_the_oracles_sessions(run, shape):
    found = [check(run, shape, seed) for seed in range(8)]
    assert any(found) or shape in ("one event", "one event a session")


def test_a_log_of_random_shape_becomes_the_oracles_sessions(run):
    assert check(run, "random", 0)
