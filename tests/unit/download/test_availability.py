"""Limits of availability: read as times are, and in ways that only other tables have."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dayahead.core.columns import TIMESTAMP
from dayahead.dataset.time import TimeConfig
from dayahead.download.availability import to_limits


def limits(values, **time):
    """Days and hours, on the clock of the zone where a value has no other."""
    found = to_limits(pa.array(values, pa.string()), TimeConfig(column="since", **time))
    times = found.instants
    if found.walls is not None:
        times = pc.coalesce(times, found.walls.cast(TIMESTAMP))
    return [each and f"{each:%Y-%m-%d %H}" for each in times.to_pylist()]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("time", "written"),
    [
        ({"unit": "s"}, ["2026-02-01", "2026-02-02 12:00", "1767225600", "2026-07-03T02:00+02:00"]),
        ({"format": "%d.%m.%Y %H:%M"}, ["01.02.2026", "02.02.2026 12:30"]),
        ({"format": "%H:%M %d.%m.%Y"}, ["00:30 01.02.2026", "12:30 02.02.2026"]),
    ],
    ids=["number", "format", "clock first"],
)
def test_dates_without_a_clock_are_read_where_others_are_written(time, written, zone):
    expected = ["2026-02-01 00", "2026-02-02 12", "2026-01-01 00", "2026-07-03 00"]
    assert limits([*written, None], zone=zone, **time) == [*expected[: len(written)], None]


@pytest.mark.parametrize(
    "time", [{}, {"zone": "Europe/Berlin"}, {"format": "%d.%m.%Y"}, {"unit": "s"}]
)
def test_zero_dates_are_none_and_infinite_ones_the_ends_of_all_times(time):
    written = ["0000-00-00", "0000-00-00 00:00:00", "infinity", "-infinity"]
    assert limits(written, **time) == [None, None, "2250-01-01 00", "1900-01-01 00"]
