"""Vocabularies: order of the indices, minimum counts, and that they only append."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.features import vocabulary
from dayahead.features.vocabulary import (
    KnownValues,
    add_value_counts,
    count_values,
    empty_value_counts,
    listed_values,
    vocabulary_of,
)
from dayahead.windows.folder import n_known
from support.builders import events, instant

NO_COUNTS = empty_value_counts(pa.int64())


def window(*values, day=1):
    """Value counts of a window's events, one a minute."""
    rows = [
        {"item_id": value, "event_time": f"2026-01-{day:02d} 00:{minute:02d}"}
        for minute, value in enumerate(values)
    ]
    return count_values(events(rows), "item_id")


def test_values_are_ordered_by_window_and_first_event():
    table = add_value_counts(
        NO_COUNTS,
        [("2026-01-01", window(7, 5, 7)), ("2026-01-02", window(9, 5, 3, day=2))],
    )
    assert vocabulary_of(table).equals(table.cast(vocabulary_of(table).schema))
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


def test_nulls_are_not_counted():
    found = window(None, 4, None)
    assert found["value"].to_pylist() == [4]
    assert found["events"].to_pylist() == [1]


def test_unknown_values_and_nulls_have_index_1():
    rows = [{"colour": value, "event_time": "2026-01-01"} for value in ["red", None, "blue"]]
    found = count_values(events(rows), "colour")
    table = vocabulary_of(add_value_counts(empty_value_counts(pa.string()), [("w", found)]))
    known = KnownValues(table["value"])
    looked_up = known.indices(pa.array(["blue", "green", None, "red"]))
    assert looked_up.dtype == np.int32
    assert looked_up.tolist() == [3, 1, 1, 2]
    before = known.indices(pa.array(["blue", "blue", "red"]), np.array([1, 2, 1]))
    assert before.tolist() == [1, 3, 2]  # of one value known, blue is not


@pytest.mark.parametrize("big", [2**53 + 1, 2**62 + 1])
def test_big_integers_stay_exact(big):
    table = add_value_counts(NO_COUNTS, [("w", window(big - 1, big))])
    known = KnownValues(table["value"])
    assert known.indices(pa.array([big, None, big + 1])).tolist() == [3, 1, 1]


TEXT = st.sampled_from(["", "a", "\u00e4", "a\0"]) | st.text(max_size=3)
INTEGERS = st.integers(0, 4) | st.integers(-(2**63), 2**63 - 1)


@given(st.data(), st.sampled_from([(pa.string(), TEXT), (pa.int64(), INTEGERS)]))
def test_few_values_and_many_are_looked_up_alike(data, kind):
    type_, values = kind
    known = data.draw(st.lists(values, unique=True))
    wanted = data.draw(st.lists(values | st.none(), min_size=1, max_size=20))
    expected = [known.index(value) if value in known else -1 for value in wanted]
    lookup = KnownValues(pa.array(known, type_))
    assert lookup.positions(pa.array(wanted, type_)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "FEW", 0)
        assert lookup.positions(pa.array(wanted, type_)).tolist() == expected


def test_a_value_enters_in_the_window_in_which_it_reaches_min_count():
    windows = [
        ("2026-01-01", window(7, 5, 7)),
        ("2026-01-02", window(9, 8, 5, 8, day=2)),
        ("2026-01-03", window(4, 9, day=3)),
    ]
    counts = add_value_counts(NO_COUNTS, windows, min_count=2)
    assert counts.select(["value", "index", "first_window", "events"]).to_pylist() == [
        {"value": 7, "index": 2, "first_window": "2026-01-01", "events": 2},
        {"value": 5, "index": 4, "first_window": "2026-01-02", "events": 2},
        {"value": 9, "index": 5, "first_window": "2026-01-03", "events": 2},
        # Before 5 in the second window, though 5 was known for longer.
        {"value": 8, "index": 3, "first_window": "2026-01-02", "events": 2},
        {"value": 4, "index": None, "first_window": None, "events": 1},
    ]
    table = vocabulary_of(counts)
    assert table["value"].to_pylist() == [7, 8, 5, 9]
    assert table["index"].to_pylist() == [2, 3, 4, 5]
    first = [instant("2026-01-01 00:00"), instant("2026-01-02 00:01"), instant("2026-01-01 00:01")]
    assert table["first_time"].to_pylist()[:3] == first  # not of the window they entered in
    assert n_known(table, ["2025-12-31", *(name for name, _ in windows)]).tolist() == [0, 1, 3, 4]
    assert n_known(NO_COUNTS, ["2026-01-01"]).tolist() == [0]


def test_looking_ahead_a_value_frequent_in_all_windows_enters_in_its_first():
    windows = [("2026-01-01", window(7, 5)), ("2026-01-02", window(8, 5, 8, day=2))]
    table = vocabulary_of(add_value_counts(NO_COUNTS, windows, 2, looks_ahead=True))
    assert table["value"].to_pylist() == [5, 8]
    assert table["first_window"].to_pylist() == ["2026-01-01", "2026-01-02"]


def by_rows(contents, min_count):
    """(value, window it enters in) in the order of the indices, event by event."""
    seen, known = Counter(), []
    for name, values in contents:
        before = {value for value, _ in known}
        seen.update(values)
        enough = dict.fromkeys(value for value in values if seen[value] >= min_count)
        known += [(value, name) for value in enough if value not in before]
    return known


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=2, max_size=5),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_adding_windows_in_parts_appends_and_equals_adding_them_at_once(contents, cut, min_count):
    named = [(f"2026-01-{day:02d}", values) for day, values in enumerate(contents, start=1)]
    windows = [(name, window(*values, day=int(name[-2:]))) for name, values in named]
    counts = add_value_counts(NO_COUNTS, windows, min_count)
    first = add_value_counts(NO_COUNTS, windows[:cut], min_count)
    assert add_value_counts(first, windows[cut:], min_count).equals(counts)
    whole, before = vocabulary_of(counts), vocabulary_of(first)
    found = zip(whole["value"].to_pylist(), whole["first_window"].to_pylist(), strict=True)
    assert list(found) == by_rows(named, min_count)
    frozen = ["index", "value", "first_window", "first_time"]
    assert whole.select(frozen).slice(0, len(before)).equals(before.select(frozen))
    assert sum(counts["events"].to_pylist()) == sum(len(values) for values in contents)


def listed(*values):
    """Values of a table of items."""
    return listed_values(pa.chunked_array([pa.array(values, pa.int64())]))


def test_listed_values_enter_without_an_event_and_get_their_first_time_later():
    windows = [
        ("2026-01-01", window(7)),
        ("2026-01-01", listed(5, None, 7, 5, 6)),
        ("2026-01-02", window(6, 4, day=2)),
        ("2026-01-02", listed(3)),
    ]
    table = vocabulary_of(add_value_counts(NO_COUNTS, windows, min_count=0)).to_pydict()
    assert table["value"] == [7, 5, 6, 4, 3]
    assert [name[-1] for name in table["first_window"]] == ["1", "1", "1", "2", "2"]
    assert table["events"] == [1, 0, 1, 1, 0]
    times = [f"{time:%Y-%m-%d %R}" for time in table["first_time"]]
    never = "2200-01-01 00:00"
    assert times == ["2026-01-01 00:00", never, "2026-01-02 00:00", "2026-01-02 00:01", never]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9))), min_size=2, max_size=5
    ),
    st.integers(1, 4),
)
def test_listed_values_may_be_added_in_parts_too(contents, cut):
    windows = [
        (f"2026-01-{day:02d}", table)
        for day, (clicked, known) in enumerate(contents, start=1)
        for table in (window(*clicked, day=day) if clicked else listed(), listed(*known))
    ]
    counts = add_value_counts(NO_COUNTS, windows, min_count=0)
    first = add_value_counts(NO_COUNTS, windows[: 2 * cut], min_count=0)
    assert add_value_counts(first, windows[2 * cut :], min_count=0).equals(counts)
    values = [value for _, table in windows for value in table["value"].to_pylist()]
    assert counts["value"].to_pylist() == list(dict.fromkeys(values))
    assert sum(counts["events"].to_pylist()) == sum(len(clicked) for clicked, _ in contents)
