from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError, DataError
from dayahead.features.operators import local_time
from dayahead.preprocess.calendar import calendar_over
from support.builders import instant, window_config

DAY = 86_400_000_000
HOUR = 3_600_000_000


def micros(text):
    return int(instant(text).timestamp()) * 1_000_000


def test_utc_days_are_consecutive_and_named_by_date():
    calendar = calendar_over(
        window_config(), micros("2026-01-31 10:00"), micros("2026-02-02 01:00")
    )
    assert calendar.names == ("2026-01-31", "2026-02-01", "2026-02-02")
    assert calendar.edges.tolist() == [micros("2026-01-31") + n * DAY for n in range(4)]


def test_a_window_holds_its_start_and_not_its_end():
    calendar = calendar_over(window_config(), micros("2026-01-01"), micros("2026-01-03"))
    edge = micros("2026-01-02")
    assert calendar.positions(np.array([edge - 1, edge])).tolist() == [0, 1]


def test_grace_moves_the_close_and_not_the_edges():
    calendar = calendar_over(window_config(grace=30), micros("2026-01-01"), micros("2026-01-01"))
    assert calendar.closes.tolist() == [micros("2026-01-02 00:30")]
    assert calendar.edges.tolist() == [micros("2026-01-01"), micros("2026-01-02")]


def test_a_day_whose_midnight_does_not_exist_begins_with_its_first_instant():
    # Brazil's summer time of 2017 began on 15 October at midnight: 23:59 was followed by 01:00.
    window = window_config(timezone="America/Sao_Paulo")
    calendar = calendar_over(window, micros("2017-10-14 12:00"), micros("2017-10-16 12:00"))
    assert calendar.names == ("2017-10-14", "2017-10-15", "2017-10-16")
    starts = ["2017-10-14 03:00", "2017-10-15 03:00", "2017-10-16 02:00", "2017-10-17 02:00"]
    assert calendar.edges.tolist() == [micros(start) for start in starts]


def test_the_day_the_clocks_go_back_has_25_hours():
    window = window_config(timezone="Europe/Oslo")
    calendar = calendar_over(window, micros("2026-10-25 12:00"), micros("2026-10-25 12:00"))
    assert np.diff(calendar.edges).tolist() == [25 * HOUR]


def test_hours_are_cut_and_named_in_utc_whatever_the_zone():
    window = window_config(unit="hour", timezone="Asia/Kolkata")
    calendar = calendar_over(window, micros("2026-01-01 22:59"), micros("2026-01-02 00:00"))
    assert calendar.names == ("2026-01-01T22", "2026-01-01T23", "2026-01-02T00")
    assert calendar.edges[0] == micros("2026-01-01 22:00")


def test_blocks_begin_with_the_first_session_and_have_one_length():
    window = window_config(origin="first_session", timezone="Europe/Oslo")
    first = micros("2026-10-24 23:10")
    calendar = calendar_over(window, first, first + 2 * DAY)
    assert calendar.names == ("2026-10-24", "2026-10-25", "2026-10-26")
    assert calendar.edges.tolist() == [first + n * DAY for n in range(4)]


def test_an_unknown_zone_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match=r"timezone.*'Mars/Olympus'"):
        calendar_over(window_config(timezone="Mars/Olympus"), 0, 0)


@given(
    zone=st.sampled_from(["UTC", "America/Sao_Paulo", "Europe/Oslo", "Asia/Kathmandu"]),
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
