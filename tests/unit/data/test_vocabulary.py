import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import events, instant
from dayahead.data.vocabulary import empty_vocabulary, grown, indices_of, occurrences


def window(*values, day=1):
    """A window's events, one value a minute."""
    rows = [
        {"item_id": value, "event_time": f"2026-01-{day:02d} 00:{minute:02d}"}
        for minute, value in enumerate(values)
    ]
    return occurrences(events(rows), "item_id")


def test_values_follow_window_then_first_occurrence():
    table = grown(
        empty_vocabulary(pa.int64()),
        [("2026-01-01", window(7, 5, 7)), ("2026-01-02", window(9, 5, 3, day=2))],
    )
    assert table.to_pydict() == {
        "index": [2, 3, 4, 5],
        "value": [7, 5, 9, 3],
        "first_window": ["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-02"],
        "first_time": [
            instant("2026-01-01 00:00"),
            instant("2026-01-01 00:01"),
            instant("2026-01-02 00:00"),
            instant("2026-01-02 00:02"),
        ],
        "events": [2, 2, 1, 1],
    }


def test_nulls_get_no_index():
    found = window(None, 4, None)
    assert found["value"].to_pylist() == [4]
    assert found["events"].to_pylist() == [1]


def test_unheard_of_values_and_nulls_are_unknown():
    rows = [{"colour": value, "event_time": "2026-01-01"} for value in ["red", None, "blue"]]
    table = grown(empty_vocabulary(pa.string()), [("w", occurrences(events(rows), "colour"))])
    looked_up = indices_of(pa.array(["blue", "green", None, "red"]), table)
    assert looked_up.type == pa.int32()
    assert looked_up.to_pylist() == [3, 1, 1, 2]


@pytest.mark.parametrize("big", [2**53 + 1, 2**62 + 1])
def test_big_integers_stay_exact(big):
    table = grown(empty_vocabulary(pa.int64()), [("w", window(big - 1, big))])
    assert indices_of(pa.array([big, None, big + 1]), table).to_pylist() == [3, 1, 1]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=2, max_size=5),
    st.integers(1, 4),
)
def test_growing_by_parts_appends_and_equals_growing_at_once(contents, cut):
    windows = [
        (f"2026-01-{day:02d}", window(*values, day=day))
        for day, values in enumerate(contents, start=1)
    ]
    empty = empty_vocabulary(pa.int64())
    whole = grown(empty, windows)
    before = grown(empty, windows[:cut])
    assert grown(before, windows[cut:]).equals(whole)
    frozen = ["index", "value", "first_window", "first_time"]
    assert whole.select(frozen).slice(0, len(before)).equals(before.select(frozen))
    assert sum(whole["events"].to_pylist()) == sum(len(values) for values in contents)
