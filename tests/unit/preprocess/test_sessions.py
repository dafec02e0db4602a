import hashlib
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.columns import ROLES
from dayahead.features.arrays import ints, set_column
from dayahead.preprocess.calendar import Progress, calendar_over
from dayahead.preprocess.sessions import (
    STEPS,
    UNSEEN,
    apply_session_steps,
    needs_users,
)
from dayahead.preprocess.user_steps import apply_user_steps
from support.builders import (
    CALENDAR_WINDOWS,
    dataset_config,
    events,
    instant,
    session,
    window_config,
)
from support.session_oracle import expected_sessions

USER = {"user_id": "user_id"}


def cut(table, dataset, window=None):
    """Events kept, counts and calendar, from all events at once."""
    window = window or window_config()
    if dataset.sessions.gap_minutes is not None:
        table = table.filter(table["user_id"].is_valid())
    table = set_column(table, "_finalised", pa.array([False] * len(table)))
    starts = ints(table["session_start" if "session_start" in table.column_names else "event_time"])
    calendar = calendar_over(window, int(starts.min()), int(starts.max()))
    progress = Progress(calendar, 0, len(calendar.names))
    if needs_users(dataset.sessions):
        table, _ = apply_user_steps(table, dataset, progress)
    found = apply_session_steps(
        table, dataset, window.overrun, progress, lambda ids: np.full(len(ids), UNSEEN)
    )
    return found.kept, found.counts, calendar


def dropped_by(counts):
    return {step: counts[step].sum() for step in STEPS}


def items(table, dataset, window=None):
    """Items of every session kept."""
    sessions = {}
    for row in cut(table, dataset, window)[0].to_pylist():
        sessions.setdefault(row["session_id"], []).append(row["item_id"])
    return sessions


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("keep", [1, 1, 2, 1, 2, 2]),
        ("drop_consecutive", [1, 2, 1, 2]),
        ("drop_all", [1, 2]),
    ],
)
def test_repeats_within_a_session(rule, expected):
    table = events(session("a", [1, 1, 2, 1, 2, 2], "2026-01-01 10:00"))
    rules = dataset_config(repeats={"rule": rule, "scope": "session"})
    assert items(table, rules) == {"a": expected}


def test_an_event_of_another_type_is_no_repeat():
    """The same clicks; the types of the log are v for a view, c for a cart."""
    rows = session("a", [1, 1, 2, 2, 2, 1, 1], "2026-01-01 10:00", user_id="u")
    for row, event_type in zip(rows, "vcvvccv", strict=True):
        row["event_type"] = event_type
    for scope in ("session", "user"):
        found = {
            rule: cut(
                events(rows),
                dataset_config(columns={**USER, "event_type": "type"},
                               repeats={"rule": rule, "scope": scope}),
            )[0]["row"].to_pylist()
            for rule in ("keep", "drop_consecutive", "drop_all")
        }  # fmt: skip
        assert found == {
            "keep": [0, 1, 2, 3, 4, 5, 6],
            "drop_consecutive": [0, 1, 2, 4, 5, 6],
            "drop_all": [0, 1, 2, 4],
        }


def test_a_feature_that_is_called_event_type_makes_no_types():
    rows = session("a", [1, 1, 2], "2026-01-01 10:00")
    for row, event_type in zip(rows, "vcv", strict=True):
        row["event_type"] = event_type
    feature = {"event_type": {"kind": "categorical", "column": "type"}}
    rules = {"repeats": {"rule": "drop_consecutive", "scope": "session"}, "features": feature}
    for column, expected in ((None, [0, 2]), ("type", [0, 1, 2])):
        dataset = dataset_config(columns={"event_type": column}, **rules)
        kept = cut(events(rows), dataset)[0]
        assert kept["row"].to_pylist() == expected
        assert "event_type" in kept.column_names


def test_clicks_that_were_sent_again_are_dropped_before_repeats_are_looked_for():
    seconds = [(0, 1), (1, 2), (4, 1), (9, 1), (15, 1), (16, 2)]  # 1 at 15 is six seconds later
    rows = [
        {"session_id": "a", "user_id": "u", "item_id": item,
         "event_time": instant(f"2026-01-01 10:00:{second:02}")}
        for second, item in seconds
    ]  # fmt: skip
    for scope in ("session", "user"):
        repeats = {"rule": "drop_consecutive", "scope": scope}
        rules = dataset_config(columns=USER, repeats=repeats, retry_seconds=5)
        kept, counts, _ = cut(events(rows), rules)
        assert kept["row"].to_pylist() == [0, 1, 4, 5]
        assert (counts["retries"].sum(), counts["repeats"].sum()) == (2, 0)
    other = [{**row, "user_id": f"u{n}"} for n, row in enumerate(rows)]  # nobody's clicks are two
    assert len(cut(events(other), rules)[0]) == len(rows)


def test_repeats_of_a_user_reach_across_sessions_and_spare_the_users_first_event():
    table = events(
        session("a", [1, 2], "2026-01-01 10:00", user_id="u")
        + session("b", [2, 3, 1], "2026-01-01 11:00", user_id="u")
        + session("c", [2, 3], "2026-01-01 10:30", user_id="v")
    )
    consecutive = {"rule": "drop_consecutive", "scope": "user"}
    rules = dataset_config(columns=USER, repeats=consecutive)
    assert items(table, rules) == {"a": [1, 2], "b": [3, 1], "c": [2, 3]}
    rules = dataset_config(columns=USER, repeats={"rule": "drop_all", "scope": "user"})
    assert items(table, rules) == {"a": [1, 2], "c": [2, 3]}  # b keeps one event: too short


def test_a_session_starts_with_its_first_event_even_where_that_is_dropped():
    table = events(
        session("a", [1, 2], "2026-01-01 23:50", user_id="u")
        + session("b", [2, 3, 4], "2026-01-01 23:59", user_id="u")
    )
    rules = dataset_config(columns=USER, repeats={"rule": "drop_consecutive", "scope": "user"})
    kept = cut(table, rules, window_config(overrun="keep"))[0].to_pylist()
    starts = {row["session_start"] for row in kept if row["session_id"] == "b"}
    assert starts == {instant("2026-01-01 23:59")}


def test_the_columns_session_start_decides_over_the_first_event():
    rows = session("a", [1, 2], "2026-01-02 00:01", session_start="2026-01-01 23:59")
    rules = dataset_config(columns={"session_start": "started"})
    kept, _, calendar = cut(events(rows), rules, window_config(overrun="keep"))
    assert {calendar.names[row["window"]] for row in kept.to_pylist()} == {"2026-01-01"}


@pytest.mark.parametrize(
    ("changes", "expected", "dropped"),
    [
        ({"overrun": "cut"}, [1, 2], 3),
        ({"overrun": "cut", "grace": 1}, [1, 2, 3], 2),  # the close itself is beyond
        ({"overrun": "keep"}, [1, 2, 3, 4, 5], 0),
    ],
)
def test_overrun_is_cut_at_the_windows_end_plus_grace(changes, expected, dropped):
    table = events(session("a", [1, 2, 3, 4, 5], "2026-01-01 23:58"))
    window = window_config(**changes)
    assert items(table, dataset_config(), window) == {"a": expected}
    counts = cut(table, dataset_config(), window)[1]
    assert counts["overrun"].sum() == dropped
    assert counts["beyond"].sum() == 5 - len(expected) or changes["overrun"] == "keep"


@pytest.mark.parametrize(("truncate", "expected"), [("first", [1, 2, 3]), ("last", [3, 4, 5])])
def test_truncation_keeps_the_first_or_the_last_of_what_is_left(truncate, expected):
    table = events(session("a", [1, 1, 2, 3, 4, 5], "2026-01-01 10:00"))
    consecutive = {"rule": "drop_consecutive", "scope": "session"}
    rules = dataset_config(max_length=3, truncate=truncate, repeats=consecutive)
    assert items(table, rules) == {"a": expected}


def test_gaps_cut_sessions_where_a_user_idles_longer():
    moments = ["10:00", "10:30", "11:00:01", "11:05"]  # 30 minutes is no gap, a second more is
    rows = [
        {"user_id": "u", "item_id": n, "event_time": f"2026-01-01 {moment}"}
        for n, moment in enumerate(moments)
    ] + [{"user_id": None, "item_id": 9, "event_time": "2026-01-01 10:10"}]
    rules = dataset_config(columns={"session_id": None, **USER}, gap_minutes=30)
    assert items(events(rows), rules) == {
        "u:2026-01-01T10:00:00.000000Z": [0, 1],
        "u:2026-01-01T11:00:01.000000Z": [2, 3],
    }


@pytest.mark.parametrize(
    "user", ["u", "\u00c5sa-\u00dcnsal", "\u7528\u6237", "4711", "a:b", "x" * 300]
)
def test_roles_of_sessions_cut_by_gaps_are_those_of_user_and_time(user):
    rows = [
        {"user_id": user, "item_id": n, "event_time": f"2026-01-01 {10 + n // 2}:00:0{n % 2}"}
        for n in range(20)
    ]
    rules = dataset_config(columns={"session_id": None, **USER}, gap_minutes=30,
                           split={"seed": -3, "train": [0, 0.5], "valid": [0.5, 1],
                                  "test": [0, 0]})  # fmt: skip
    kept = cut(events(rows), rules)[0].to_pylist()
    roles = {row["event_time"]: (row["train"], row["valid"]) for row in kept}
    assert len({row["session_id"] for row in kept}) == 10
    for n in range(10):
        start = f"2026-01-01T{10 + n}:00:00.000000Z"
        digest = hashlib.sha256(f"-3:{user}:{start}".encode()).digest()
        is_train = digest[0] < 128
        assert roles[datetime.fromisoformat(start)] == (is_train, not is_train)


def test_a_session_without_a_role_is_dropped_and_counted():
    rows = [row for n in range(40) for row in session(f"s{n}", [1, 2], "2026-01-01 10:00")]
    split = {"train": [0, 0.25], "valid": [0, 0.25], "test": [0, 0.25]}
    kept, counts, _ = cut(events(rows), dataset_config(split=split))
    assert 0 < len(kept) < 80
    assert counts["no_role"].sum() == 80 - len(kept)
    assert counts["sessions"].sum() == len(kept) // 2


@st.composite
def logs(draw):
    """Few ids and few minutes around a midnight, so that everything collides."""
    size = draw(st.integers(1, 25))
    midnight = instant("2026-01-02")
    return events(
        [
            {
                "session_id": draw(st.sampled_from("abcd")),
                "user_id": draw(st.sampled_from(["u", "v", None])),
                "item_id": draw(st.integers(1, 3)),
                "event_type": draw(st.sampled_from(["view", "cart", None])),
                "event_time": midnight + timedelta(minutes=draw(st.integers(-70, 70))),
                "row": row,
            }
            for row in draw(st.permutations(range(size)))
        ]
    )


@st.composite
def data_sets(draw):
    by_gap = draw(st.booleans())
    return dataset_config(
        columns={
            **USER,
            **({"session_id": None} if by_gap else {}),
            "event_type": draw(st.sampled_from([None, "type"])),
        },
        gap_minutes=20.0 if by_gap else None,
        retry_seconds=draw(st.sampled_from([None, 60.0, 600.0])),
        repeats={
            "rule": draw(st.sampled_from(["keep", "drop_consecutive", "drop_all"])),
            "scope": draw(st.sampled_from(["session", "user"])),
        },
        max_length=draw(st.integers(2, 4)),
        truncate=draw(st.sampled_from(["first", "last"])),
        split=draw(
            st.sampled_from([{}, {"train": [0, 0.5], "test": [0.2, 0.6], "valid": [0, 0.1]}])
        ),
    )


@given(
    table=logs(),
    dataset=data_sets(),
    window=st.builds(
        lambda window, **more: window_config(**window, **more),
        st.sampled_from(CALENDAR_WINDOWS),
        overrun=st.sampled_from(["cut", "keep"]),
        grace=st.sampled_from([0, 15]),
    ),
)
def test_sessions_equal_those_of_the_row_by_row_oracle(table, dataset, window):
    if dataset.columns.event_type is None:
        table = table.drop_columns(["event_type"])
    expected, dropped = expected_sessions(table, dataset, window)
    if dropped["no_user"] == len(table):
        return
    read = table if dataset.sessions.gap_minutes is None else table.drop_columns(["session_id"])
    kept, counts, calendar = cut(read, dataset, window)
    found = {}
    for row in kept.to_pylist():
        sessions = found.setdefault(calendar.names[row["window"]], {})
        first = {
            "start": row["session_start"],
            "user": row["user_id"],
            "roles": [role for role in ROLES if row[role]],
            "rows": [],
        }
        sessions.setdefault(row["session_id"], first)["rows"].append(row["row"])
    assert found == {
        name: {
            session_id: {
                "start": value["start"],
                "user": value["user"],
                "roles": value["roles"],
                "rows": [event["row"] for event in value["events"]],
            }
            for session_id, value in sessions.items()
        }
        for name, sessions in expected.items()
    }
    assert dropped_by(counts) == {step: dropped[step] for step in STEPS}
    assert counts["read"].sum() == len(kept) + sum(dropped_by(counts).values())
    sizes = {calendar.names[n]: int(size) for n, size in enumerate(counts["sessions"]) if size}
    assert sizes == {name: len(sessions) for name, sessions in expected.items()}
