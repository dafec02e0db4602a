"""What preprocess says of a log: large losses by their settings, ids that are not unique."""

import re

import pytest

from dayahead.config.loading import validated
from dayahead.core.errors import DataError
from dayahead.core.files import read_json
from dayahead.dataset.schema import QualityConfig
from dayahead.preprocess.report import DefectsError
from support.builders import dataset_config, events, session

USER = {"user_id": "user_id"}
SHARED = events(
    [
        row
        for user in "uv"
        for n in range(4)
        for row in session(str(n), [1, 1, 2, 2], "2026-01-01 10:00", user_id=user if n else "w")
    ]
)  # of 4 sessions, all but the first are of two users


def limited(quality, **settings):
    dataset = dataset_config(columns={**USER, **settings.pop("columns", {})}, **settings)
    return type(dataset)(
        **{**vars(dataset), "quality": validated(QualityConfig, quality, "quality")}
    )


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_sessions_of_several_users_are_said_with_the_cure(run, caplog):
    found = run(SHARED, dataset_config(columns=USER), log_end="2026-01-02")
    assert found.manifest.defects["session_users"].found == 3
    assert said(caplog) == [
        "preprocess: sessions hold the events of several users: 75.00% of 4 sessions (3), such as "
        "1; if ids are unique for a user only, set columns.session_id: [user_id, session_id]"
    ]


def test_a_log_without_defects_and_large_losses_says_nothing(run, caplog):
    rows = session("a", [1, 1, 2, 3, 4, 5, 6, 7, 8, 9], "2026-01-01 10:00", user_id="u")
    rules = {"rule": "drop_consecutive", "scope": "session"}
    found = run(events(rows), dataset_config(columns=USER, repeats=rules), log_end="2026-01-02")
    assert found.manifest.steps["dropped_repeats"] == 1  # a tenth is not more than a tenth
    assert said(caplog) == []
    assert set(read_json(found.folder / "windows.json")) == {
        "unit", "length", "log_end", "sessions_read", "sessions_kept", "steps", "windows",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "share", "words"),
    [
        ("session_users", 0.74, "several users: 75.00% of 4 sessions (3), such as 1; if ids are"),
        ("session_days", 0.49, "24 hours after their start: 50.00% of 32 events (16), such as 0"),
    ],
)
def test_a_limit_ends_the_stage_before_anything_is_replaced(run, name, share, words):
    later = events(
        [row for n in range(4) for row in session(str(n), [3, 4] * 2, "2026-01-03", user_id="w")]
    )
    log = [SHARED.slice(0, 16), later] if name == "session_days" else SHARED
    run(log, limited({name: share + 0.02}), project="shared", log_end="2026-01-04")
    for _ in range(2):  # the second time, the windows come from the cache
        with pytest.raises(DefectsError, match=re.escape(words)) as caught:
            run(log, limited({name: share}), project="shared", log_end="2026-01-04")
        assert f"or raise quality.{name} ({share:.2%}), which this exceeds" in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        (
            {"repeats": {"rule": "drop_consecutive", "scope": "session"}},
            "31 % of the events (5) were dropped by sessions.repeats: drop_consecutive (if they "
            "are of other types, such as carts after views, set columns.event_type)",
        ),
        (
            {"retry_seconds": 60},
            "31 % of the events (5) were dropped by sessions.retry_seconds: 60",
        ),
        ({"max_length": 8}, "38 % of the events (6) were dropped by sessions.max_length: 8"),
        ({"min_length": 3}, "12 % of the events (2) were dropped by sessions.min_length: 3"),
    ],
)  # fmt: skip
def test_settings_that_drop_more_than_a_tenth_are_named(run, caplog, rules, line):
    long = session("a", [1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9], "2026-01-01 10:00")
    log = events(long + session("b", [1, 2], "2026-01-01 11:00"))
    for n in (1, 2):  # the second time, the windows come from the cache
        run(log, dataset_config(**rules), log_end="2026-01-02", project="shared")
        assert said(caplog) == [f"preprocess: {line}"] * n


def test_sessions_in_no_interval_of_the_split_are_named_even_where_none_is_left(run, caplog):
    nobody = dataset_config(split={"train": [0, 0], "valid": [0, 0], "test": [0, 0]})
    with pytest.raises(DataError, match="none of 1 windows is kept"):
        run(events(session("a", [1, 2], "2026-01-01")), nobody, log_end="2026-01-02")
    line = "100 % of the events (2) were dropped by split, as their sessions are in none of its"
    assert said(caplog) == [f"preprocess: {line} intervals"]


def test_late_and_thin_events_are_named_by_the_settings_of_windows(run, caplog):
    rows = session("a", [1, 2, 3, 4], "2026-01-01 23:58") + session("b", [1, 2], "2026-01-01 10:00")
    rows += session("c", [1, 2], "2026-01-02 10:00")
    run(events(rows), dataset_config(), log_end="2026-01-03", min_sessions=2)
    assert said(caplog) == [
        "preprocess: 25 % of the events (2) were dropped by window.overrun: cut, as they come "
        "after their session's window",
        "preprocess: 25 % of the events (2) were dropped by window.min_sessions: 2",
    ]


def test_events_without_a_user_are_named(run, caplog):
    rows = session("x", [1, 2, 3, 4], "2026-01-01 10:00", user_id="u")
    rows += session("x", [1], "2026-01-01 10:00", user_id=None)
    by_gap = dataset_config(columns={**USER, "session_id": None}, gap_minutes=30)
    run(events(rows).drop_columns(["session_id"]), by_gap, log_end="2026-01-02")
    assert said(caplog) == [
        "preprocess: 20 % of the events (1) were dropped by sessions.gap_minutes, as they name no "
        "user (columns.user_id)"
    ]
