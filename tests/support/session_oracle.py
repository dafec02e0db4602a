"""Oracle: events into sessions the slow and obvious way, one row after the other."""

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dayahead.config.windows import WindowConfig
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.sessions import SessionsConfig

Row = dict[str, Any]


def expected_sessions(
    table: pa.Table, dataset: DatasetConfig, window: WindowConfig
) -> tuple[dict[str, dict[str, Row]], Counter[str]]:
    """Sessions by window and id (calendar windows in UTC only), and dropped events by step.

    A session's `train` are its events before the end of the window, the others may be in the grace.
    """
    rows = sorted(table.to_pylist(), key=lambda row: (row["event_time"], row["row"]))
    dropped: Counter[str] = Counter()
    rules = dataset.sessions
    if rules.gap_minutes is not None:
        dropped["no_user"] = sum(row["user_id"] is None for row in rows)
        rows = _named_by_gap(rows, rules.gap_minutes)
    retried, repeated = _dropped_first(rows, rules)

    by_session: dict[str, list[Row]] = {}
    for row in rows:
        by_session.setdefault(row["session_id"], []).append(row)
    windows: dict[str, dict[str, Row]] = {}
    for session_id, read in by_session.items():
        start = read[0].get("session_start") or read[0]["event_time"]
        name, end = window_of(start, window)
        close = end + timedelta(minutes=window.grace)
        kept, counts = _first_and_in_time(read, retried, repeated, close, window.overrun)
        dropped.update(counts)
        if len(kept) < rules.min_length:
            dropped["short_sessions"] += len(kept)
            continue
        first = rules.truncate == "first"
        cut = kept[: rules.max_length] if first else kept[-rules.max_length :]
        dropped["truncated"] += len(kept) - len(cut)
        in_time = _before(cut, end, window.overrun)[0]
        session = _with_roles(session_id, cut, in_time, dataset)
        dropped["no_role"] += len(cut) - len(session["events"])
        if session["roles"]:
            session |= {"start": start, "user": read[0].get("user_id")}
            windows.setdefault(name, {})[session_id] = session
    return windows, dropped


def _first_and_in_time(
    read: list[Row], retried: set[int], repeated: set[int], close: datetime, overrun: str
) -> tuple[list[Row], dict[str, int]]:
    """A session's events without repeats and overrun; repeats that are too late are overrun."""
    counts = {}
    kept = [row for row in read if row["row"] not in retried | repeated]
    kept, counts["overrun"] = _before(kept, close, overrun)
    for step, dropped in (("retries", retried), ("repeats", repeated)):
        gone, n_late = _before([row for row in read if row["row"] in dropped], close, overrun)
        counts[step] = len(gone)
        counts["overrun"] += n_late
    return kept, counts


def _with_roles(
    session_id: str, events: list[Row], in_time: list[Row], dataset: DatasetConfig
) -> Row:
    roles = _roles(session_id, dataset)
    if len(in_time) < min(dataset.sessions.min_length, len(events)):
        roles = [role for role in roles if role != "train"]
    if roles in ([], ["train"]):
        events = in_time if roles else []
    return {"roles": roles, "events": events, "train": in_time}


def _named_by_gap(rows: list[Row], gap_minutes: float) -> list[Row]:
    last: dict[str, tuple[datetime, str]] = {}
    named = []
    for row in rows:
        user, time = row["user_id"], row["event_time"]
        if user is None:
            continue
        if user not in last or time - last[user][0] > timedelta(minutes=gap_minutes):
            session_id = f"{user}:{time.isoformat(timespec='microseconds')[:-6]}Z"
        else:
            session_id = last[user][1]
        last[user] = (time, session_id)
        named.append({**row, "session_id": session_id})
    return named


def _dropped_first(rows: list[Row], rules: SessionsConfig) -> tuple[set[int], set[int]]:
    """Row numbers of what was sent again, and of what then repeats an item."""
    retried = _retries(rows, rules.retry_seconds)
    first = [row for row in rows if row["row"] not in retried]
    return retried, _repeats(first, rules.repeats.rule, f"{rules.repeats.scope}_id")


def _retries(rows: list[Row], seconds: float | None) -> set[int]:
    """Row numbers of events that were sent again."""
    last: dict[tuple[Any, ...], datetime] = {}
    gone = set()
    for row in rows if seconds is not None else ():
        names = ("session_id", "user_id", "item_id", "event_type")
        key = tuple(row.get(name) for name in names)
        if key in last and row["event_time"] - last[key] <= timedelta(seconds=seconds):
            gone.add(row["row"])
        last[key] = row["event_time"]
    return gone


def _repeats(rows: list[Row], rule: str, scope: str) -> set[int]:
    """Row numbers that go."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[scope], []).append(row)
    gone = set()
    for group, members in groups.items():
        if group is None or rule == "keep":
            continue
        if rule == "drop_consecutive":
            gone |= {b["row"] for a, b in pairwise(members) if _act(a) == _act(b)}
        else:
            seen = set()
            for row in members:
                if _act(row) in seen:
                    gone.add(row["row"])
                seen.add(_act(row))
    return gone


def _act(row: Row) -> tuple[Any, Any]:
    return row["item_id"], row.get("event_type")


def window_of(start: datetime, window: WindowConfig) -> tuple[str, datetime]:
    """Name and end of the calendar window (UTC) in which a session that starts then belongs."""
    n = window.length
    begin = start.replace(second=0, microsecond=0)
    if window.unit == "minute":
        begin = begin.replace(minute=begin.minute // n * n)
        return begin.strftime("%Y-%m-%dT%H%M"), begin + timedelta(minutes=n)
    if window.unit == "hour":
        begin = begin.replace(hour=begin.hour // n * n, minute=0)
        return begin.strftime("%Y-%m-%dT%H"), begin + timedelta(hours=n)
    begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
    begin -= timedelta(days=begin.weekday() if n == 7 else 0)
    return begin.strftime("%Y-%m-%d"), begin + timedelta(days=n)


def _before(rows: list[Row], close: datetime, overrun: str) -> tuple[list[Row], int]:
    kept = [row for row in rows if overrun == "keep" or row["event_time"] < close]
    return kept, len(rows) - len(kept)


def _roles(session_id: str, dataset: DatasetConfig) -> list[str]:
    split = dataset.split
    digest = hashlib.sha256(f"{split.seed}:{session_id}".encode()).digest()
    u = int.from_bytes(digest[:8], "big") / 2**64
    intervals = {"train": split.train, "valid": split.valid, "test": split.test}
    return [role for role, (low, high) in intervals.items() if low <= u < high]


def expected_past(table: pa.Table, dataset: DatasetConfig) -> dict[str, list[Row]]:
    """Past events by session id: all of the user's that the rule for repeats leaves."""
    rows = sorted(table.to_pylist(), key=lambda row: (row["event_time"], row["row"]))
    rules = dataset.sessions
    if rules.gap_minutes is not None:
        rows = _named_by_gap(rows, rules.gap_minutes)
    retried, repeated = _dropped_first(rows, rules)
    rows = [row for row in rows if row["row"] not in retried | repeated]
    past: dict[str, list[Row]] = {}
    for row in rows:
        if row["session_id"] in past:
            continue
        before = [
            other
            for other in rows
            if other["user_id"] == row["user_id"] is not None
            and other["event_time"] < row["event_time"]
            and other["session_id"] != row["session_id"]
        ]
        past[row["session_id"]] = before[-rules.past_max_length :]
    return past
