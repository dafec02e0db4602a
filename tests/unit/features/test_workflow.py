"""Encoding: every kind of feature by hand, sessions as lists, live sessions."""

import math
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_ID, TIMESTAMP, VALUE
from dayahead.features.vocabulary import (
    add_value_counts,
    count_values,
    empty_value_counts,
    vocabulary_of,
)
from dayahead.features.workflow import (
    build_workflow,
    encode,
    encode_lists,
    encode_session,
    input_table,
    input_types,
    to_frame,
)
from dayahead.windows.metadata import (
    FeatureStatistics,
    NumberStatistics,
    SessionRules,
    Statistics,
)
from support.builders import events, instant, random_log, session


def columns_of(name, kind):
    return [f"{name}_sin", f"{name}_cos"] if kind in ("hour", "weekday") else [name]


def statistics(features, *, timezone="UTC", item_type="int", repeats="keep"):
    rules = SessionRules(
        repeats=repeats, min_length=2, max_length=20, truncate="first", past_max_length=0
    )
    return Statistics(
        unit="day",
        timezone=timezone,
        item_type=item_type,
        sessions=rules,
        fitted_on=["2026-01-01"],
        features={
            name: FeatureStatistics(columns=columns_of(name, entry["kind"]), **entry)
            for name, entry in features.items()
        },
    )


def vocabulary(column, values, type_, start="2026-01-01"):
    """A vocabulary that knows these values, the n-th since n days after `start`."""
    rows = [
        {column: value, "event_time": instant(start) + timedelta(days=n)}
        for n, value in enumerate(values)
    ]
    table = events(rows)
    table = table.set_column(0, column, table[column].cast(type_))
    return vocabulary_of(
        add_value_counts(empty_value_counts(type_), [("2026-01-01", count_values(table, column))])
    )


ITEMS = vocabulary("item_id", [50, 60], pa.int64())


def encoded(features, rows, vocabularies=None, **settings):
    result = encode(
        events(rows), statistics(features, **settings), {ITEM_ID: ITEMS, **(vocabularies or {})}
    )
    return {name: result[name].to_pylist() for name in result.column_names}


def test_items_become_indices_and_unknown_items_1():
    rows = session("a", [60, 50, 70], "2026-01-03 10:00")
    assert encoded({}, rows) == {"item_id": [3, 2, 1]}


def test_a_categorical_null_is_unknown_and_19_digits_stay_exact():
    big = 2103807459595387724
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "category": value}
        for value in [big, None, big + 1, big + 2]
    ]
    known = {"category": vocabulary("category", [big, big + 1], pa.int64())}
    features = {"category": {"kind": "categorical", "type": "int"}}
    assert encoded(features, rows, known)["category"] == [2, 1, 3, 1]


def test_numbers_are_standardised_and_nulls_become_the_mean():
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "price": price}
        for price in [14.0, None, 6.0, math.nan, math.inf]
    ]
    features = {"price": {"kind": "number", "mean": 10.0, "std": 4.0}}
    assert encoded(features, rows)["price"] == [1, 0, -1, 0, 0]


def test_log_number_takes_negative_numbers_as_zero():
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "price": price}
        for price in [math.e - 1, 0.0, -5.0, None]
    ]
    features = {"price": {"kind": "log_number", "mean": 0.5, "std": 0.25}}
    assert encoded(features, rows)["price"] == pytest.approx([2, -2, -2, 0], abs=1e-6)


def test_a_number_that_never_varied_is_only_centred():
    rows = session("a", [50, 50], "2026-01-03", price=3.0)
    features = {"price": {"kind": "number", "mean": 3.0, "std": 0.0}}
    assert encoded(features, rows)["price"] == [0, 0]


@pytest.mark.parametrize(
    ("moment", "sine", "cosine"),
    [
        ("00:00", 0, 1),
        ("06:00", 1, 0),
        ("12:00", 0, -1),
        ("13:30", math.sin(1.125 * math.pi), None),
    ],
)
def test_the_hour_is_a_circle(moment, sine, cosine):
    rows = [{"item_id": 50, "event_time": f"2026-01-03 {moment}"}]
    columns = encoded({"hour": {"kind": "hour"}}, rows)
    assert columns["hour_sin"] == pytest.approx([sine], abs=1e-6)
    if cosine is not None:
        assert columns["hour_cos"] == pytest.approx([cosine], abs=1e-6)


def test_the_week_begins_on_monday_local_time():
    # Sunday 22:00 in UTC is Monday in Oslo.
    rows = [
        {"item_id": 50, "event_time": moment} for moment in ["2026-07-05 21:59", "2026-07-05 22:00"]
    ]
    columns = encoded({"weekday": {"kind": "weekday"}}, rows, timezone="Europe/Oslo")
    assert columns["weekday_sin"] == pytest.approx([math.sin(12 / 7 * math.pi), 0], abs=1e-6)
    assert columns["weekday_cos"] == pytest.approx([math.cos(12 / 7 * math.pi), 1], abs=1e-6)


def test_item_age_is_log_days_over_a_month_and_never_negative():
    rows = [
        {"item_id": item, "event_time": moment}
        for item, moment in [
            (50, "2026-01-01"),
            (50, "2026-01-31"),
            (60, "2026-01-03 12:00"),
            (60, "2026-01-01"),  # before its first event
            (70, "2026-01-31"),  # unknown
        ]
    ]
    ages = encoded({"age": {"kind": "item_age"}}, rows)["age"]
    assert ages == pytest.approx([0, 1, math.log(2.5) / math.log(31), 0, 0], abs=1e-6)


def test_every_encoded_column_is_int32_or_float32():
    features = {
        "colour": {"kind": "categorical", "type": "string"},
        "hour": {"kind": "hour"},
        "age": {"kind": "item_age"},
        "price": {"kind": "number", "mean": 0.0, "std": 1.0},
    }
    known = {ITEM_ID: ITEMS, "colour": vocabulary("colour", ["red"], pa.string())}
    rows = session("a", [50, 60], "2026-01-03", colour="red", price=1.0)
    table = encode(events(rows), statistics(features), known)
    assert dict(zip(table.column_names, table.schema.types, strict=True)) == {
        "item_id": pa.int32(),
        "colour": pa.int32(),
        "hour_sin": pa.float32(),
        "hour_cos": pa.float32(),
        "age": pa.float32(),
        "price": pa.float32(),
    }


def test_a_live_session_is_sorted_and_its_repeats_are_dropped():
    rows = [
        {"item_id": 60, "event_time": "2026-01-03 10:02"},
        {"item_id": 50, "event_time": "2026-01-03 10:00"},
        {"item_id": 99, "event_time": "2026-01-03 10:02"},
        {"item_id": 50, "event_time": "2026-01-03 10:01"},
    ]
    settings = statistics({"brand": {"kind": "categorical", "type": "string"}},
                          repeats="drop_consecutive")  # fmt: skip
    known = {ITEM_ID: ITEMS, "brand": vocabulary("brand", ["x"], pa.string())}
    table = encode_session(events(rows).drop_columns(["row"]), settings, known)
    assert table.column_names == ["item_id", "event_time", "brand"]
    assert table["item_id"].to_pylist() == [[2, 3, 1]]
    assert table["brand"].to_pylist() == [[1, 1, 1]]  # no such column: unknown
    minutes = [datetime.fromisoformat(f"2026-01-03T10:{m}:00+00:00") for m in ("00", "02", "02")]
    assert table["event_time"].to_pylist() == [minutes]


def test_of_a_long_live_session_the_last_19_events_are_kept():
    rows = session("a", [50, 60] * 12 + [50], "2026-01-03 10:00")
    table = encode_session(events(rows), statistics({"hour": {"kind": "hour"}}), {ITEM_ID: ITEMS})
    assert table["item_id"].to_pylist() == [[2, 3] * 9 + [2]]
    assert {len(table[name][0]) for name in table.column_names} == {19}


def test_no_events_give_no_rows_or_empty_lists():
    none = events(session("a", [50], "2026-01-03")).slice(0, 0)
    for first, expected in [([], []), ([0, 0], [[], []])]:
        table = encode_lists(none, first, statistics({}), {ITEM_ID: ITEMS})
        assert table["item_id"].to_pylist() == table["event_time"].to_pylist() == expected
        assert table.schema.types == [pa.list_(pa.int32()), pa.list_(TIMESTAMP)]


def test_lists_hold_the_encoded_rows_whatever_the_kind():
    log = random_log(seed=3, days=2)
    log = log.sort_by([(SESSION_ID, "ascending"), (EVENT_TIME, "ascending"), (ROW, "ascending")])
    features = {
        "colour": {"kind": "categorical", "type": "string"},
        "shop": {"kind": "categorical", "type": "int"},
        "price": {"kind": "log_number", "mean": 2.0, "std": 1.5},
        "rank": {"kind": "number", "knots": [1.0, 20.0, 60.0], "n": 3},
        "relative": {
            "kind": "relative_number",
            "relative_to": "colour",
            "values": ["red", "blue"],
            "means": [20.0, 0.0],
            "overall_mean": 10.0,
        },
        "hour": {"kind": "hour"},
        "weekday": {"kind": "weekday"},
        "age": {"kind": "item_age"},
    }
    for name in ("rank", "relative"):
        log = log.append_column(name, log["price"])
    known = {
        column: vocabulary(column, values, type_)
        for column, values, type_ in [
            ("item_id", list(range(0, 16, 2)), pa.int64()),
            ("colour", ["red", "green"], pa.string()),
            ("shop", [2**53 + 1], pa.int64()),
        ]
    }
    settings = statistics(features, timezone="America/Sao_Paulo")
    rows = encode(log, settings, known).add_column(1, EVENT_TIME, log[EVENT_TIME])
    ids = log[SESSION_ID].to_pylist()
    first = [row for row, name in enumerate(ids) if row == 0 or name != ids[row - 1]]
    found = encode_lists(log, first, settings, known)
    assert found.column_names == rows.column_names
    assert found.column_names[:3] == ["item_id", "event_time", "colour"]
    for name in rows.column_names:
        values = rows[name].to_pylist()
        lists = [values[a:b] for a, b in pairwise([*first, len(log)])]
        assert found[name].to_pylist() == lists
    assert found["price"].combine_chunks().flatten().null_count == 0


def test_a_relative_number_is_compared_with_its_categorys_mean():
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "brand": brand, "price": price}
        for brand, price in [("a", 5.0), ("a", None), ("b", 3.0), (None, 6.0), ("new", 2.0)]
    ]
    features = {
        "brand": {"kind": "categorical", "type": "string"},
        "price": {"kind": "relative_number", "relative_to": "brand", "values": ["a", "b"],
                  "means": [4.0, 0.0], "overall_mean": 8.0},
    }  # fmt: skip
    known = {"brand": vocabulary("brand", ["a"], pa.string())}
    assert encoded(features, rows, known)["price"] == [0.25, 0, 0, -0.25, -0.75]
    # Also for a model that reads the price without the brand.
    alone = statistics(features).select(["price"])
    assert encode(events(rows), alone, {ITEM_ID: ITEMS})["price"].to_pylist() == [
        0.25, 0, 0, -0.25, -0.75,
    ]  # fmt: skip
    # On a scale of its own.
    features["price"] |= {"mean": 0.25, "std": 0.5}
    assert encoded(features, rows, known)["price"] == [0, 0, -0.5, -1, -2]


def test_a_relative_number_is_finite_however_small_the_mean():
    rows = [{"item_id": 50, "event_time": "2026-01-03", "brand": "a", "price": 3e38}]
    features = {
        "brand": {"kind": "categorical", "type": "string"},
        "price": {"kind": "relative_number", "relative_to": "brand", "values": ["a"],
                  "means": [1e-300], "overall_mean": 8.0},
    }  # fmt: skip
    known = {"brand": vocabulary("brand", ["a"], pa.string())}
    assert encoded(features, rows, known)["price"] == [np.finfo(np.float32).max]


def test_gauss_rank_is_the_normal_quantile_of_the_rank():
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "price": price}
        for price in [1.0, 2.0, 4.0, 3.0, -9.0, 99.0, None]
    ]
    features = {"price": {"kind": "number", "knots": [1.0, 2.0, 2.0, 4.0], "n": 4}}
    normal = NormalDist()
    shares = [1 / 8, 4 / 8, 7 / 8, 6 / 8, 1 / 8, 7 / 8]  # 3 is half-way between ranks 3 and 4
    expected = [*map(normal.inv_cdf, shares), 0]
    assert encoded(features, rows)["price"] == pytest.approx(expected, abs=1e-6)
    features = {"price": {"kind": "number", "knots": [], "n": 0}}
    assert encoded(features, rows)["price"] == [0] * 7


def test_a_window_uses_its_own_statistics_and_a_live_session_the_newest():
    rows = session("a", [50], "2026-01-03", price=4.0)
    windows = {
        "2026-01-02": NumberStatistics(mean=1.0, std=1.0),
        "2026-01-03": NumberStatistics(mean=2.0, std=2.0),
    }
    settings = statistics({"price": {"kind": "number", "windows": windows}})
    known = {ITEM_ID: ITEMS}
    assert encode(events(rows), settings, known, window="2026-01-02")["price"].to_pylist() == [3]
    assert encode(events(rows), settings, known)["price"].to_pylist() == [1]
    assert encode_session(events(rows), settings, known)["price"].to_pylist() == [[1]]


IDS = {
    "int": (pa.int64(), st.one_of(st.none(), st.integers(0, 6), st.integers(-(2**63), 2**63 - 1))),
    "string": (pa.string(), st.one_of(st.none(), st.sampled_from("abcdef"), st.text(max_size=3))),
}


def log_of(ids):
    return pa.table({ITEM_ID: ids, EVENT_TIME: pa.array(range(len(ids))).cast(TIMESTAMP)})


@pytest.mark.parametrize("item_type", IDS)
@given(data=st.data())
def test_ids_alone_are_encoded_as_the_workflow_does(item_type, data):
    type_, values = IDS[item_type]
    ids = data.draw(st.lists(values, min_size=1, max_size=30))
    known = data.draw(st.lists(values.filter(lambda value: value is not None), unique=True))
    vocabularies = {ITEM_ID: pa.table({VALUE: pa.array(known, type_)})}
    rules, log = statistics({}, item_type=item_type), log_of(pa.array(ids, type_))
    frame = to_frame(input_table(log, input_types(rules)), "cpu")
    expected = build_workflow(rules, vocabularies).transform(frame)
    assert encode(log, rules, vocabularies)[ITEM_ID].to_pylist() == expected[ITEM_ID].tolist()


def test_a_live_session_of_ids_takes_no_workflow(monkeypatch):
    monkeypatch.setattr("dayahead.features.workflow.build_workflow", None)
    log = log_of(pa.array([60, 9]))
    assert encode_session(log, statistics({}), {ITEM_ID: ITEMS})[ITEM_ID].to_pylist() == [[3, 1]]


@pytest.mark.parametrize(
    ("item_type", "ids"),
    [
        ("int", pa.array([60, None, 9], pa.int32())),
        ("int", pa.array(["60", None, "9"])),
        ("string", pa.array(["b", None, "x"], pa.large_string())),
        ("string", pa.array(["b", None, "x"]).dictionary_encode()),
    ],
)
def test_ids_alone_of_any_type_are_those_of_the_vocabulary(item_type, ids):
    values = {"int": [50, 60], "string": ["a", "b"]}[item_type]
    known = {ITEM_ID: pa.table({VALUE: pa.array(values, IDS[item_type][0])})}
    rules = statistics({}, item_type=item_type)
    assert encode(log_of(ids), rules, known)[ITEM_ID].to_pylist() == [3, 1, 1]
