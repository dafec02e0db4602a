import math
from datetime import datetime, timedelta

import numpy as np
import nvtabular as nvt
import pyarrow as pa
import pytest
from merlin.io import Dataset
from nvtabular.ops import Groupby, ListSlice

from builders import events, instant, session
from dayahead.columns import EVENT_TIME, ITEM_ID, SESSION_ID
from dayahead.config.dataset import TIME_FEATURES, FeatureConfig
from dayahead.data.features import encode, encode_session, fitted, listed
from dayahead.data.vocabulary import empty_vocabulary, grown, occurrences
from dayahead.files import write_parquet


def columns_of(name, kind):
    column = None if kind in TIME_FEATURES else name
    return FeatureConfig(kind=kind, column=column).columns_of(name)


def statistics(features, *, timezone="UTC", item_type="int", repeats="keep"):
    entries = {
        name: {"columns": columns_of(name, entry["kind"]), **entry}
        for name, entry in features.items()
    }
    return {
        "unit": "day",
        "timezone": timezone,
        "item_type": item_type,
        "sessions": {"repeats": repeats, "min_length": 2, "max_length": 20, "truncate": "first"},
        "fitted_on": ["2026-01-01"],
        "features": entries,
    }


def vocabulary(column, values, type_, start="2026-01-01"):
    """A vocabulary that knows these values, the n-th since n days after `start`."""
    rows = [
        {column: value, "event_time": instant(start) + timedelta(days=n)}
        for n, value in enumerate(values)
    ]
    table = events(rows)
    table = table.set_column(0, column, table[column].cast(type_))
    return grown(empty_vocabulary(type_), [("2026-01-01", occurrences(table, column))])


ITEMS = vocabulary("item_id", [50, 60], pa.int64())


def encoded(features, rows, vocabularies=None, **settings):
    result = encode(
        events(rows), statistics(features, **settings), {ITEM_ID: ITEMS, **(vocabularies or {})}
    )
    return {name: result[name].to_pylist() for name in result.column_names}


def test_items_become_indices_and_the_unheard_of_is_unknown():
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


def test_numbers_are_standardised_and_what_is_missing_is_the_mean():
    rows = [
        {"item_id": 50, "event_time": "2026-01-03", "price": price}
        for price in [14.0, None, 6.0, math.nan, math.inf]
    ]
    features = {"price": {"kind": "number", "mean": 10.0, "std": 4.0}}
    assert encoded(features, rows)["price"] == [1, 0, -1, 0, 0]


def test_logarithms_take_what_is_negative_for_zero():
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
def test_the_hour_goes_round_once_a_day(moment, sine, cosine):
    rows = [{"item_id": 50, "event_time": f"2026-01-03 {moment}"}]
    columns = encoded({"hour": {"kind": "hour"}}, rows)
    assert columns["hour_sin"] == pytest.approx([sine], abs=1e-6)
    if cosine is not None:
        assert columns["hour_cos"] == pytest.approx([cosine], abs=1e-6)


def test_the_week_begins_on_monday_on_the_zones_clocks():
    # Sunday 22:00 in UTC is Monday in Oslo.
    rows = [
        {"item_id": 50, "event_time": moment} for moment in ["2026-07-05 21:59", "2026-07-05 22:00"]
    ]
    columns = encoded({"weekday": {"kind": "weekday"}}, rows, timezone="Europe/Oslo")
    assert columns["weekday_sin"] == pytest.approx([math.sin(12 / 7 * math.pi), 0], abs=1e-6)
    assert columns["weekday_cos"] == pytest.approx([math.cos(12 / 7 * math.pi), 1], abs=1e-6)


def test_item_age_is_logarithmic_days_over_a_month_and_never_negative():
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


def test_means_and_deviations_are_those_of_the_train_events(tmp_path):
    prices = [1.0, 3.0, None, math.inf, 8.0, 1000.0]
    table = pa.table({"price": prices, "train": [True] * 5 + [False]})
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    write_parquet(paths[0], table.slice(0, 2))
    write_parquet(paths[1], table.slice(2))
    features = {
        "price": FeatureConfig(kind="number", column="price"),
        "brand": FeatureConfig(kind="categorical", column="brand"),
    }
    found = fitted(features, paths, "cpu")
    assert found == {"price": {"mean": 4.0, "std": pytest.approx(np.std([1, 3, 8], ddof=1))}}


@pytest.mark.parametrize("prices", [[None, None], [5.0, 5.0], [5.0]])
def test_nothing_to_fit_gives_finite_statistics(tmp_path, prices):
    table = pa.table({"price": pa.array(prices, pa.float64()), "train": [True] * len(prices)})
    write_parquet(tmp_path / "a.parquet", table)
    features = {"price": FeatureConfig(kind="number", column="price")}
    mean = 0.0 if prices[0] is None else 5.0
    assert fitted(features, [tmp_path / "a.parquet"], "cpu") == {"price": {"mean": mean, "std": 0}}


def test_a_live_session_is_one_row_in_order_with_its_repeats_gone():
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


def test_lists_are_those_of_nvtabulars_own_grouping_and_slicing():
    rows = [row for n in range(6) for row in session(f"s{n}", range(n + 1), "2026-01-01 10:00")]
    table = events(rows).sort_by([(SESSION_ID, "ascending"), (EVENT_TIME, "ascending")])
    frame = table.select([SESSION_ID, ITEM_ID, EVENT_TIME]).to_pandas()
    grouped = [SESSION_ID, ITEM_ID, EVENT_TIME] >> Groupby(
        groupby_cols=[SESSION_ID], sort_cols=[EVENT_TIME], aggs={ITEM_ID: "list"}
    )
    lists = grouped[f"{ITEM_ID}_list"] >> ListSlice(0, 4)
    workflow = nvt.Workflow(lists + grouped[SESSION_ID])
    theirs = workflow.fit_transform(
        Dataset(frame.sample(frac=1, random_state=3), cpu=True)
    ).compute()
    theirs = theirs.set_index(SESSION_ID)[f"{ITEM_ID}_list"].to_dict()

    place = np.concatenate([np.arange(n + 1) for n in range(6)])
    cut = table.filter(pa.array(place < 4))
    names = np.array(cut[SESSION_ID].to_pylist())
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    ours = listed(cut.select([ITEM_ID]), first)[ITEM_ID].to_pylist()
    assert dict(zip(names[first], ours, strict=True)) == {k: list(v) for k, v in theirs.items()}
