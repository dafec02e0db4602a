"""Wall-clock times where clocks change: by the order of rows where there is one, else counted."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.columns import TIMESTAMP
from dayahead.download import batches
from dayahead.download.clocks import OutOfOrderError, ZoneClock
from dayahead.download.times import Times
from support.raw_logs import csv, quality_of

CHANGES = {
    "Europe/Berlin": datetime(2023, 10, 29, 1, tzinfo=UTC),
    "America/New_York": datetime(2023, 11, 5, 6, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2023, 4, 1, 15, tzinfo=UTC),  # by half an hour
    "America/Havana": datetime(2023, 11, 5, 5, tzinfo=UTC),  # at midnight
}
"""When clocks go back."""


def wall(moment, zone):
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def localised(batches, zone, slack):
    """Instants of all batches; those of a batch are on the wall clock."""
    clock = ZoneClock(zone, slack)
    found = []
    for batch in batches:
        walls = pa.array(batch, pa.timestamp("us"))
        found += clock.localise(Times(pa.nulls(len(walls), TIMESTAMP), walls)).instants.to_pylist()
    return found


def is_told_apart(moments, zone):
    """Whether times go back where the second pass begins: otherwise nobody could know."""
    folds = [moment.astimezone(ZoneInfo(zone)).fold for moment in moments]
    if 1 not in folds:
        return True
    first = folds.index(1)
    return first > 0 and wall(moments[first], zone) < wall(moments[first - 1], zone)


ZONES = st.sampled_from(list(CHANGES))
SECONDS = st.lists(st.integers(-9000, 9000), min_size=2, max_size=40).map(sorted)


@given(ZONES, SECONDS, st.lists(st.integers(1, 5)))
@settings(max_examples=100, deadline=None)
def test_rows_in_order_are_read_in_order_however_they_are_cut(zone, seconds, sizes):
    moments = [CHANGES[zone] + timedelta(seconds=n) for n in seconds]
    if not is_told_apart(moments, zone):
        moments = [moment for moment in moments if moment < CHANGES[zone]]
    walls = [wall(moment, zone) for moment in moments]
    cuts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    batches = [walls[low:high] for low, high in pairwise([*cuts, len(walls)])]
    assert localised(batches, zone, 0) == moments


@given(ZONES, st.lists(st.integers(-9000, 9000), min_size=1), st.lists(st.integers(1, 5)))
@settings(max_examples=50, deadline=None)
def test_without_an_order_the_first_of_two_times_is_taken(zone, seconds, sizes):
    walls = [wall(CHANGES[zone] + timedelta(seconds=n), zone) for n in seconds]
    cuts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    batches = [walls[low:high] for low, high in pairwise([*cuts, len(walls)])]
    earliest = [each.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC) for each in walls]
    assert localised(batches, zone, None) == earliest


def test_rows_that_go_back_are_no_order():
    walls = [datetime(2023, 10, 29, 2, minute) for minute in (50, 5, 40, 20)]  # noqa: DTZ001
    with pytest.raises(OutOfOrderError):
        localised([walls], "Europe/Berlin", 0)
    with pytest.raises(OutOfOrderError):
        localised([walls[:2], walls[2:]], "Europe/Berlin", 0)
    with pytest.raises(OutOfOrderError):  # also if it shows before the hour that occurs twice
        localised([[datetime(2023, 9, 2), datetime(2023, 9, 1)], walls[:1]], "Europe/Berlin", 0)  # noqa: DTZ001


def test_times_that_do_not_exist_are_an_hour_on_and_keep_their_order():
    zone = "Europe/Berlin"
    walls = [datetime(2023, 3, 26, *at) for at in ((1, 59), (2, 0), (2, 30), (2, 59), (3, 0))]  # noqa: DTZ001
    clock = ZoneClock(zone)
    found = clock.localise(Times(pa.nulls(5, TIMESTAMP), pa.array(walls)))
    assert [each.strftime("%H:%M") for each in found.instants.to_pylist()] == [
        "00:59", "01:00", "01:30", "01:59", "01:00",
    ]  # fmt: skip
    assert found.nonexistent.tolist() == [False, True, True, True, False]


def log_over_the_change(n_sessions=12):
    """Sessions of one zone that click every 4 minutes, as (session, moment), in order of time."""
    begin = CHANGES["Europe/Berlin"] - timedelta(minutes=30)
    rows = [
        (f"s{n}", begin + timedelta(minutes=4 * step, seconds=5 * n))
        for n in range(n_sessions)
        for step in range(12)
    ]
    return sorted(rows, key=lambda row: row[1])


def lines(rows):
    return [
        f"{session},{n},{wall(moment, 'Europe/Berlin'):%Y-%m-%d %H:%M:%S}"
        for n, (session, moment) in enumerate(rows)
    ]


def swapped(rows, n):
    return [*rows[:n], rows[n + 1], rows[n], *rows[n + 2 :]]


@pytest.mark.parametrize("block", [150, 1 << 20])
@pytest.mark.parametrize("kind", ["in order", "nearly in order", "by session"])
def test_the_stage_reads_the_hour_that_occurs_twice(tmp_path, monkeypatch, kind, block):
    monkeypatch.setattr(batches, "BLOCK", block)
    rows = log_over_the_change()
    if kind == "nearly in order":  # two servers
        rows = swapped(swapped(rows, 20), 90)
    elif kind == "by session":
        rows = sorted(rows)
    found = quality_of(tmp_path, csv(*lines(rows)), time={"zone": "Europe/Berlin"})
    times = pq.read_table(tmp_path / "data/raw/events-00000.parquet")["event_time"].to_pylist()
    moments = [moment for _, moment in rows]
    assert (times == moments) == (kind != "by session")
    n_twice = sum(abs(moment - CHANGES["Europe/Berlin"]) < timedelta(hours=1) for moment in moments)
    assert (found["ambiguous"]["found"], found["ambiguous"]["of"]) == (n_twice, len(rows))
    assert found["ambiguous"]["examples"][0] == "0.csv, line 2"
    assert found["nonexistent"]["found"] == 0


def test_a_limit_may_stop_at_times_on_a_clock_that_changes(tmp_path):
    text = csv("a,1,2023-03-26 02:10:00", "a,2,2023-03-26 12:00:00")
    found = quality_of(tmp_path, text, time={"zone": "Europe/Berlin"})
    assert found["nonexistent"]["found"] == 1
    with pytest.raises(Exception, match=r"nonexistent: 50\.00% of 2 rows .*first 0\.csv, line 2"):
        quality_of(
            tmp_path, text, time={"zone": "Europe/Berlin"}, quality={"nonexistent": 0}
        )  # fmt: skip
    assert "nonexistent" not in quality_of(tmp_path, text)
