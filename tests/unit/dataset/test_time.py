"""Section `time`: formats that can be read, and limits in order."""

import re
from datetime import UTC, date, datetime

import pytest

from dayahead.core.errors import ConfigError
from dayahead.dataset.time import format_pattern, microseconds
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
