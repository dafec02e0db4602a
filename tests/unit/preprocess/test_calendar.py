from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.columns import UNITS
from dayahead.core.errors import ConfigError, DataError
from dayahead.features.operators import local_time
from dayahead.preprocess.calendar import calendar_over
from support.builders import CALENDAR_WINDOWS, instant, window_config
from support.session_oracle import window_of

DAY = 86_400_000_000
HOUR = 3_600_000_000


def micros(text):
    return int(instant(text).timestamp()) * 1_000_000


def moment(instant):
    """Microseconds as a datetime, exactly."""
    return pa.scalar(int(instant), pa.timestamp("us", "UTC")).as_py()


@pytest.mark.parametrize(
    ("zone", "names", "starts"),
    [
        # Brazil's summer time of 2017 began on 15 October at midnight: 01:00 followed 23:59.
        (
            "America/Sao_Paulo",
            ("2017-10-14", "2017-10-15", "2017-10-16"),
            ["2017-10-14 03:00", "2017-10-15 03:00", "2017-10-16 02:00", "2017-10-17 02:00"],
        ),
        # Cuba's ends on 1 November 2026 at 01:00, which 00:00 of that day follows.
        (
            "America/Havana",
            ("2026-10-31", "2026-11-01", "2026-11-02"),
            ["2026-10-31 04:00", "2026-11-01 04:00", "2026-11-02 05:00", "2026-11-03 05:00"],
        ),
    ],
    ids=["none", "two"],
)
def test_a_day_without_one_midnight_begins_with_its_first_instant(zone, names, starts):
    first, last = (micros(f"{name} 12:00") for name in (names[0], names[-1]))
    calendar = calendar_over(window_config(timezone=zone), first, last)
    assert calendar.names == names
    assert calendar.edges.tolist() == [micros(start) for start in starts]


def test_hours_are_cut_and_named_in_utc_whatever_the_zone():
    window = window_config(unit="hour", timezone="Asia/Kolkata")
    calendar = calendar_over(window, micros("2026-01-01 22:59"), micros("2026-01-02 00:00"))
    assert calendar.names == ("2026-01-01T22", "2026-01-01T23", "2026-01-02T00")
    assert calendar.edges[0] == micros("2026-01-01 22:00")


def test_minutes_are_cut_from_the_full_hour_and_named_without_a_colon():
    window = window_config(unit="minute", length=4)
    end = micros("2019-10-01 14:00")
    calendar = calendar_over(window, end - 1, end)  # 13:59:59.999999 and 14:00:00
    assert calendar.names == ("2019-10-01T1356", "2019-10-01T1400")
    assert calendar.edges.tolist() == [end - 240_000_000, end, end + 240_000_000]
    assert calendar.positions(np.array([end - 1, end])).tolist() == [0, 1]


def test_several_hours_are_cut_from_midnight_in_utc():
    window = window_config(unit="hour", length=6, timezone="Asia/Kolkata", grace=10)
    calendar = calendar_over(window, micros("2026-01-01 17:59"), micros("2026-01-01 18:00"))
    assert calendar.names == ("2026-01-01T12", "2026-01-01T18")
    assert calendar.closes.tolist() == [micros("2026-01-01 18:10"), micros("2026-01-02 00:10")]


def test_weeks_begin_on_monday_and_the_clocks_change_their_length():
    window = window_config(length=7, timezone="Europe/Oslo")
    # 29 March 2026 and 25 October 2026 are the Sundays on which the clocks change.
    for first, last, names, hours in (
        ("2026-03-29 21:59", "2026-03-29 22:00", ("2026-03-23", "2026-03-30"), [167, 168]),
        ("2026-10-19 12:00", "2026-10-25 23:00", ("2026-10-19", "2026-10-26"), [169, 168]),
    ):
        calendar = calendar_over(window, micros(first), micros(last))
        assert calendar.names == names
        assert (np.diff(calendar.edges) / HOUR).tolist() == hours


@pytest.mark.parametrize(
    ("unit", "length", "names"),
    [
        ("minute", 7, ("2026-01-01T2310", "2026-01-01T2317")),
        ("hour", 5, ("2026-01-01T23", "2026-01-02T04")),
        ("day", 3, ("2026-01-01", "2026-01-04")),
    ],
)
def test_blocks_since_the_first_session_have_any_length(unit, length, names):
    """In UTC, whatever the zone."""
    window = window_config(
        unit=unit, length=length, origin="first_session", timezone="Asia/Kolkata"
    )
    first = micros("2026-01-01 23:10") + 59_999_999
    size = length * UNITS[unit]
    calendar = calendar_over(window, first, first + size)
    assert calendar.names == names
    assert calendar.edges.tolist() == [first, first + size, first + 2 * size]


@pytest.mark.parametrize(
    ("unit", "length", "message"),
    [
        (
            "minute",
            7,
            r"length \(7 minutes\).*every hour.*1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60;",
        ),
        ("hour", 5, r"length \(5 hours\).*every day.*1, 2, 3, 4, 6, 8, 12, 24;.*first_session"),
        ("day", 2, r"length \(2 days\).*every week.*1, 7;.*first_session"),
    ],
)
def test_a_calendar_length_that_drifts_is_refused(unit, length, message):
    with pytest.raises(ConfigError, match=message):
        window_config(unit=unit, length=length)


@given(
    window=st.sampled_from(CALENDAR_WINDOWS),
    origin=st.sampled_from(["calendar", "first_session"]),
    start=st.integers(946_684_800_000_000, 2_051_222_400_000_000),  # 2000 to 2035
    n_windows=st.integers(0, 50),
)
def test_names_sort_parse_and_never_collide(window, origin, start, n_windows):
    config = window_config(**window, origin=origin)
    size = window["length"] * UNITS[window["unit"]]
    calendar = calendar_over(config, start, start + n_windows * size)
    assert [*calendar.names] == sorted(set(calendar.names))
    assert calendar.positions(np.array([start, start + n_windows * size])).tolist() == [
        0,
        n_windows,
    ]
    for name, edge in zip(calendar.names, calendar.edges, strict=False):
        behind = edge - micros(datetime.fromisoformat(name).isoformat(" "))
        assert 0 <= behind < UNITS[window["unit"]]
        if origin == "calendar":
            assert behind == 0
            assert window_of(moment(edge), config) == (name, moment(edge + size))


def test_an_unknown_zone_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match=r"timezone.*'Mars/Olympus'"):
        calendar_over(window_config(timezone="Mars/Olympus"), 0, 0)


@given(
    zone=st.sampled_from(
        ["UTC", "America/Sao_Paulo", "America/Havana", "Europe/Oslo", "Asia/Kathmandu"]
    ),
    second=st.integers(946_684_800, 2_051_222_400),  # 2000 to 2035
)
def test_an_instant_is_in_the_window_of_its_local_date(zone, second):
    start = second * 1_000_000
    local = datetime.fromtimestamp(second, ZoneInfo(zone))
    calendar = calendar_over(window_config(timezone=zone), start, start)
    assert calendar.names == (local.date().isoformat(),)
    assert calendar.positions(np.array([start])).tolist() == [0]
    shown = local.replace(tzinfo=UTC).timestamp() * 1_000_000
    assert local_time(np.array([start]), zone).tolist() == [shown]


def test_a_stray_time_makes_no_million_windows():
    first, last = micros("1970-01-01"), micros("2100-01-01")
    with pytest.raises(DataError, match=r"from 1970-01-01T00:00:00 to 2100-01-01.* windows"):
        calendar_over(window_config(unit="hour"), first, last)
    assert len(calendar_over(window_config(), first, last).names) == 47_483
