"""Encoding: every kind of feature by hand, and sessions as lists."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_ID, TIMESTAMP, VALUE
from dayahead.features.workflow import (
    encode,
    encode_lists,
)
from dayahead.windows.metadata import (
    NumberStatistics,
)
from support.builders import events, random_log, session
from support.encoding import ITEMS, statistics, vocabulary


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


NORMAL = NormalDist()
NUMBERS = {
    "standardised, what is missing is the mean": (
        {"kind": "number", "mean": 10.0, "std": 4.0},
        [14.0, None, 6.0, math.nan, math.inf],
        [1, 0, -1, 0, 0],
    ),
    "beyond float32 is missing, as in a log": (
        {"kind": "number", "mean": 10.0, "std": 4.0}, [1e39, -1e39], [0, 0]
    ),
    # A largest float32 would be infinite after a division by a small deviation.
    "cut off": (
        {"kind": "number", "mean": 10.0, "std": 0.5},
        [14.0, 3.4e38, -3.4e38, 600.0, None],
        [8, 1000, -1000, 1000, 0],
    ),
    "only centred where it never varied": (
        {"kind": "number", "mean": 3.0, "std": 0.0}, [3.0, 3.0], [0, 0]
    ),
    "a logarithm takes negative numbers as zero": (
        {"kind": "log_number", "mean": 0.5, "std": 0.25},
        [math.e - 1, 0.0, -5.0, None],
        [2, -2, -2, 0],
    ),
    "the normal quantile of the rank": (
        {"kind": "number", "knots": [1.0, 2.0, 2.0, 4.0], "n": 4},
        [1.0, 2.0, 4.0, 3.0, -9.0, 99.0, None],  # 3 is half-way between ranks 3 and 4
        [*(NORMAL.inv_cdf(share / 8) for share in (1, 4, 7, 6, 1, 7)), 0],
    ),
    "no ranks": ({"kind": "number", "knots": [], "n": 0}, [1.0, None], [0, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("feature", "prices", "expected"), NUMBERS.values(), ids=list(NUMBERS))
def test_numbers(feature, prices, expected):
    rows = [{"item_id": 50, "event_time": "2026-01-03", "price": price} for price in prices]
    assert encoded({"price": feature}, rows)["price"] == pytest.approx(expected, abs=1e-6)


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


def test_a_window_uses_its_own_statistics_or_the_newest():
    rows = session("a", [50], "2026-01-03", price=4.0)
    windows = {
        "2026-01-02": NumberStatistics(mean=1.0, std=1.0),
        "2026-01-03": NumberStatistics(mean=2.0, std=2.0),
    }
    settings = statistics({"price": {"kind": "number", "windows": windows}})
    known = {ITEM_ID: ITEMS}
    assert encode(events(rows), settings.at("2026-01-02"), known)["price"].to_pylist() == [3]
    assert encode(events(rows), settings, known)["price"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("item_type", "ids"),
    [
        ("int", pa.array([60, None, 9], pa.int32())),
        ("int", pa.array(["60", None, "9"])),
        ("string", pa.array(["b", None, "x"], pa.large_string())),
        ("string", pa.array(["b", None, "x"]).dictionary_encode()),
    ],
)
def test_ids_of_any_type_are_those_of_the_vocabulary(item_type, ids):
    values = {"int": pa.array([50, 60]), "string": pa.array(["a", "b"])}[item_type]
    known = {ITEM_ID: pa.table({VALUE: values})}
    log = pa.table({ITEM_ID: ids, EVENT_TIME: pa.array(range(3)).cast(TIMESTAMP)})
    rules = statistics({}, item_type=item_type)
    assert encode(log, rules, known)[ITEM_ID].to_pylist() == [3, 1, 1]
