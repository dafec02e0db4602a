"""Events: exact types, all time formats, and the line of unreadable values."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.download.batches import RawBatch
from dayahead.download.events import to_events
from support.sources import a_dataset

NOON = datetime(2019, 10, 1, 12, tzinfo=UTC)


def events(rows, first_row=0, **sections):
    """Convert rows given as tuples (session, item, time) or as dictionaries of columns."""
    dataset = a_dataset(**sections)
    if not isinstance(rows, dict):
        session, item, time = map(list, zip(*rows, strict=True))
        rows = {"session": session, "item": item, "time": time}
    return to_events(RawBatch(pa.table(rows), "log.csv", "line", 2), dataset, first_row)


def times(values, kind=None, **time):
    rows = {
        "session": ["s"] * len(values),
        "item": [1] * len(values),
        "time": pa.array(values, kind),
    }
    return events(rows, time=time).table["event_time"].to_pylist()


def test_a_log_without_sessions_has_no_session_column():
    dataset = a_dataset(
        columns={"session_id": None, "user_id": "user"},
        sessions={"gap_minutes": 30.0, "repeats": {"rule": "keep", "scope": "user"}},
    )
    assert dataset.event_schema().names == ["user_id", "item_id", "event_time", "row"]


def test_rows_are_converted_and_numbered():
    batch = events([(b"a", b"3", b"2019-10-01 12:00:00"), (b"b", b"-4", b"2019-10-01")], 100)
    assert batch.table.to_pylist() == [
        {"session_id": "a", "item_id": 3, "event_time": NOON, "row": 100},
        {"session_id": "b", "item_id": -4, "event_time": NOON - timedelta(hours=12), "row": 101},
    ]
    assert batch.dropped == {}


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(max_examples=25, deadline=None)
def test_whole_numbers_are_exact(numbers):
    for written in ([str(n).encode() for n in numbers], [str(n) for n in numbers], numbers):
        batch = events([("s", number, "2019-10-01") for number in written])
        assert batch.table["item_id"].to_pylist() == numbers


def test_blanks_around_numbers_are_no_part_of_them():
    features = {"price": {"kind": "number", "column": "cost"}}
    rows = {"session": [" a "], "item": ["7 "], "time": ["2019-10-01"], "cost": ["\t1.5"]}
    (event,) = events(rows, features=features).table.to_pylist()
    assert (event["session_id"], event["item_id"], event["price"]) == (" a ", 7, 1.5)


@pytest.mark.parametrize(("kind", "exact"), [(pa.float32(), 2.0**24), (pa.float64(), 2.0**53)])
def test_floats_become_whole_numbers_only_if_exact(kind, exact):
    def ids(values):
        n = len(values)
        rows = {"session": [549.0] * n, "item": pa.array(values, kind), "time": ["2019-10-01"] * n}
        return events(rows).table.select(["session_id", "item_id"]).to_pydict()

    assert ids([1.0, 0.0, exact, None]) == {
        "session_id": ["549"] * 3, "item_id": [1, 0, int(exact)]
    }  # fmt: skip
    for number in (0.5, exact + 2, float("nan")):
        with pytest.raises(SourceError, match="column item: expected a whole number"):
            ids([number])


def test_infinite_numbers_become_null():
    features = {"price": {"kind": "number", "column": "cost"}}
    rows = {
        "session": ["s"] * 7, "item": [1] * 7, "time": ["2019-10-01"] * 7,
        "cost": [b"1.5", b"nan", b"inf", None, b"-2e3", b"1e308", b"-3e38"],
    }  # fmt: skip
    table = events(rows, features=features).table
    assert table["price"].to_pylist() == [1.5, None, None, None, -2000.0, None, -3e38]


NUMBERS = [
    (
        ",",
        None,
        {"1234,5": 1234.5, "-1,5e3": -1500.0, ",5": 0.5, "7": 7.0, "nan": None},
        "1.5 1,2,3",
    ),
    (",", ".", {"1.234,5": 1234.5, "1.234.567": 1234567.0, "12,5": 12.5}, "1.23 12.34,5 1,234.5"),
    (".", ",", {"1,234.5": 1234.5, "-1,234": -1234.0, "1234.5": 1234.5}, "1,23 1234,567 1.234,5"),
    (",", "\u202f", {"12\u202f345,6": 12345.6}, "1\u202f2"),
]


@pytest.mark.parametrize(("decimal", "thousands", "fine", "bad"), NUMBERS)
def test_numbers_with_other_signs(decimal, thousands, fine, bad):
    sections = {
        "features": {"price": {"kind": "number", "column": "cost"}},
        "source": {"decimal": decimal, "thousands": thousands},
    }

    def prices(texts):
        n = len(texts)
        rows = {"session": ["s"] * n, "item": [1] * n, "time": ["2019-10-01"] * n, "cost": texts}
        return events(rows, **sections).table["price"].to_pylist()

    assert prices(list(fine)) == list(fine.values())
    shown = f"1{thousands or ''}234{decimal}5"
    for text in bad.split(" "):
        with pytest.raises(SourceError, match=f"line 2: column cost: .* such as {shown}, found"):
            prices([text])


def test_rows_without_session_item_or_time_are_dropped_and_counted():
    day = "2019-10-01"
    rows = [("a", 1, day), (None, None, day), ("a", None, None), ("a", 2, None), ("b", 3, day)]
    batch = events(rows)
    assert batch.dropped == {"no session_id": 1, "no item_id": 1, "no event_time": 1}
    assert batch.table["row"].to_pylist() == [0, 4]


def test_the_session_start_is_parsed_like_the_time():
    rows = {"session": ["a", "b"], "item": [1, 1], "time": [1569931200000] * 2}
    rows["started"] = pa.array([1569931200000 - 5, None])
    batch = events(rows, columns={"session_start": "started"}, time={"unit": "ms"})
    assert batch.table["session_start"].to_pylist() == [NOON - timedelta(milliseconds=5)]
    assert batch.dropped == {"no session_start": 1}


def test_text_without_an_offset_is_in_the_configured_zone():
    summer, winter = datetime(2019, 7, 1, 10, tzinfo=UTC), datetime(2019, 1, 1, 11, tzinfo=UTC)
    written = ["2019-07-01 12:00:00", "2019-01-01 12:00:00", "2019-07-01T10:00:00Z"]
    assert times(written, zone="Europe/Oslo") == [summer, winter, summer]
    assert times(written[:2], zone="Europe/Oslo") == [summer, winter]
    assert times(["2019-07-01 10:00:00 UTC"], zone="Europe/Oslo") == [summer]


def test_arrow_time_types():
    naive = NOON.replace(tzinfo=None)
    assert times([naive], pa.timestamp("ns")) == [NOON]
    assert times([naive], pa.timestamp("ms"), zone="Europe/Oslo") == [NOON - timedelta(hours=2)]
    assert times([NOON], pa.timestamp("s", "America/New_York"), zone="Europe/Oslo") == [NOON]
    assert times([NOON.date()], pa.date32()) == [NOON - timedelta(hours=12)]


def test_an_offset_is_added_to_a_date():
    rows = {
        "session": ["a"] * 3, "item": [1] * 3,
        "time": ["2016-05-09", "2016-05-09", None], "ms": [b"526309", None, b"1"],
    }  # fmt: skip
    batch = events(rows, time={"offset": "ms", "offset_unit": "ms"})
    midnight = datetime(2016, 5, 9, tzinfo=UTC)
    assert batch.table["event_time"].to_pylist() == [midnight + timedelta(milliseconds=526309)]
    assert batch.dropped == {"no event_time": 2}


DAY, DAY_MS = "2019-10-01", "1569931200000"


@pytest.mark.parametrize(
    ("column", "fine", "bad", "unit", "message"),
    [
        ("item", b"1", b"x1", "text", "expected a whole number .* found b'x1'"),
        ("item", "1", "1.5", "text", "found '1.5'"),
        ("item", "1", str(2**63), "text", "found '9223372036854775808'"),
        (
            "time",
            DAY,
            "yesterday",
            "text",
            r"expected text such as 2019.* found 'yesterday'\. quality.unreadable above 0",
        ),
        ("time", DAY, DAY_MS, "text", r"\(time.unit is text\), found '1569931200000'"),
        ("session", b"a", b"\xff", "text", r"expected text in UTF-8, found b'\\xff'"),
        ("item", b"1", b"0xFFFFFFFFFFFFFFFF", "text", "found b'0xF"),  # -1, says Arrow
        ("time", DAY_MS, "0x10", "ms", "found '0x10'"),
    ],
)
def test_errors_name_the_line(column, fine, bad, unit, message):
    rows = {"session": ["a"] * 1002, "item": [1] * 1002, "time": [DAY] * 1002}
    rows[column] = [fine] * 1000 + [bad, fine]
    with pytest.raises(SourceError, match=rf"log\.csv, line 1,002: column {column}: .*{message}"):
        events(rows, time={"unit": unit})


def test_errors_name_the_line_of_an_offset():
    rows = {"session": ["a"], "item": [1], "time": ["2016-05-09"], "ms": [b"soon"]}
    with pytest.raises(SourceError, match=r"line 2: column ms: expected a whole number of ms"):
        events(rows, time={"offset": "ms"})


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_out_of_range_do_not_overflow(unit):
    far = [2**63 - 1, -(2**63), -(2**62)]
    if unit != "ns":
        far.append(2**62)  # of s and ms, 0 modulo 2**64 in microseconds
    assert times(far, unit=unit) == times(pa.array(far).cast(pa.timestamp(unit))) == []
    assert times([str(10**30), str(-(10**30))], unit=unit) == []


def test_rows_outside_are_dropped_and_known_by_their_values():
    rows = [("a", n, when) for n, when in enumerate(["2019-10-01", "1989-12-31", "1990-01-01"])]
    rows += [("b", n, when) for n, when in enumerate(["2200-01-01", "9999-12-31", "0001-01-01"])]
    batch = events(rows, 10)
    assert batch.table["row"].to_pylist() == [10, 12]
    assert batch.outside["row"].to_pylist() == [11, 13, 14, 15]
    assert batch.outside_values.to_pylist() == ["1989-12-31", *(when for _, _, when in rows[3:])]
    assert batch.dropped == {"outside time.between": 4}


def test_a_session_start_outside_counts_as_the_time_does():
    rows = {"session": ["a"] * 2, "item": [1] * 2, "time": ["2019-10-01"] * 2}
    rows["started"] = ["2019-10-01", "1970-01-01"]
    batch = events(rows, columns={"session_start": "started"})
    assert (batch.table.num_rows, batch.dropped) == (1, {"outside time.between": 1})


def test_a_column_without_a_time_type_is_all_unreadable():
    rows = {"session": ["a"] * 3, "item": [1] * 3}
    rows["time"] = pa.array([None, timedelta(1), timedelta(2)])
    with pytest.raises(
        SourceError, match=r"line 3: column time: expected .*found datetime\.timedel"
    ):
        events(rows)
    batch = events(rows, quality={"unreadable": 1})
    assert (batch.table.num_rows, batch.dropped) == (0, {"unreadable": 2, "no event_time": 1})
    assert len(batch.errors) == 2
