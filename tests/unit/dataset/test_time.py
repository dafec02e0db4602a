"""Section `time`: formats that can be read, and limits in order."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.dataset.time import as_utc, format_pattern, microseconds
from support.sources import a_dataset


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ({"format": "%d.%m.%Y", "unit": "s"}, "time.format is for text, but time.unit is s"),
        ({"format": "%d.%m.%Q"}, "time.format: %Q is not known in '%d.%m.%Q'; known: %Y"),
        ({"format": ["%F", "%d %H:%M"]}, "'%d %H:%M' needs the year (%Y, or %y of two digits)"),
        ({"format": "%d %Y"}, "needs the month (%m, or %b by name), once"),
        ({"format": "%m %Y"}, "needs the day (%d), once"),
        ({"format": "%F %d"}, "has the field d twice"),
        ({"format": "%F %y"}, "needs the year"),
        ({"format": "%F %I:%M"}, "%I and %p (AM, PM) belong together"),
        ({"format": "%F %H %I %p"}, "has both %H and %I"),
        ({"between": ["2020-01-02", "2020-01-01"]}, "the earlier one first"),
        ({"between": ["1960-01-01", "2020-01-01"]}, "expected two times from 1970 to 2200"),
        ({"between": ["2020-01-01", "2200-01-02"]}, "expected two times from 1970 to 2200"),
        ({"between": ["2020-01-01"]}, "time.between"),
        ({"between": ["soon", "2020-01-01"]}, "time.between"),
        ({"unit": "days"}, "time.unit"),
        ({"settle": "30 minutes"}, "time.settle: expected a duration up to a year"),
        ({"settle": "1h", "complete_until": "yesterday"}, "leave one of them out"),
        ({"complete_until": "yestrday"}, "time.complete_until"),
        ({"complete_until": "2026-03-07"}, "time.complete_until"),
    ],
)
def test_what_cannot_be_read_is_refused(time, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        a_dataset(time=time)


def test_formats_are_one_or_several():
    assert a_dataset(time={"format": "%F"}).time.formats == ("%F",)
    assert a_dataset(time={"format": ["%F", "%D"]}).time.formats == ("%F", "%D")
    assert a_dataset().time.formats == ()


def test_a_date_ends_with_its_day():
    time = a_dataset(time={"between": ["2020-01-01", "2020-01-01"]}).time
    noon = microseconds(datetime(2020, 1, 1, 12, tzinfo=UTC))
    assert time.limits == (noon - 12 * 3_600_000_000, noon + 12 * 3_600_000_000)
    assert microseconds(date(2020, 1, 1)) == noon - 12 * 3_600_000_000


def test_signs_of_a_format_stand_for_themselves():
    pattern = format_pattern("[%d.%m.%Y]  %H:%M")
    assert re.fullmatch(pattern, "[03.04.2023] 05:06")
    assert not re.fullmatch(pattern, "[03-04-2023] 05:06")


def test_a_time_without_a_zone_is_utc():
    assert as_utc(datetime.fromisoformat("2026-01-01")) == datetime(2026, 1, 1, tzinfo=UTC)


def log_end(last, now="2026-03-07T02:30", **time):
    """Return up to when a log with this last event is complete, in UTC."""
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (last, now)]
    end = a_dataset(time=time).time.log_end(microseconds(moments[0]), moments[1])
    assert end.tzinfo is UTC
    return f"{end:%Y-%m-%dT%H:%M}"


def test_without_a_setting_a_log_ends_with_its_last_event():
    assert log_end("2026-03-06T23:40") == "2026-03-06T23:40"


def test_a_log_settles_some_time_after_its_last_event():
    assert log_end("2026-03-06T23:40", settle="30min") == "2026-03-07T00:10"


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("2026-03-06T18:00", "2026-03-07T00:00"),  # a whole day
        ("2026-03-07T01:00", "2026-03-07T00:00"),  # and the first clicks of today
        ("2026-03-05T18:00", "2026-03-06T00:00"),  # the file of the 6th has not come
        ("2026-02-28T23:59", "2026-03-01T00:00"),  # nor those before it
    ],
)
def test_yesterday_is_complete_once_it_has_come(last, expected):
    assert log_end(last, complete_until="yesterday") == expected


def test_yesterday_ends_at_midnight_in_the_zone():
    """In Tokyo it is the 7th already; in Oslo clocks go forward on 29 March at 1:00 UTC."""
    tokyo = {"complete_until": "yesterday", "zone": "Asia/Tokyo"}
    assert log_end("2026-03-06T14:00", "2026-03-06T17:30", **tokyo) == "2026-03-06T15:00"
    oslo = {"complete_until": "yesterday", "zone": "Europe/Oslo"}
    assert log_end("2026-03-29T20:00", "2026-03-30T00:30", **oslo) == "2026-03-29T22:00"


MOMENTS = st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(MOMENTS, MOMENTS, st.sampled_from(["UTC", "Asia/Kathmandu", "America/St_Johns"]))
def test_yesterday_never_closes_today_nor_a_day_to_come(last, now, zone):
    time = a_dataset(time={"complete_until": "yesterday", "zone": zone}).time
    end = time.log_end(microseconds(last), now)
    assert end <= min(now, last + timedelta(days=1, hours=1))
    later = time.log_end(microseconds(last), now + timedelta(hours=5))
    assert end <= later
