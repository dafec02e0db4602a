"""Section `items`: what it becomes, and an error for each setting that does not fit."""

import pyarrow as pa
import pytest

from dayahead.core.errors import ConfigError
from dayahead.dataset.item_table import item_table
from dayahead.dataset.schema import load_dataset

VALID = """\
description: for a test
licence: none
source: {urls: [a.csv]}
columns: {session_id: session, item_id: {column: item}}
time: {column: time, zone: Europe/Oslo}
sessions: {repeats: {rule: keep, scope: session}}
features: {colour: {kind: categorical, column: colour}}
items:
  source: {urls: [items.csv]}
  item_id: {column: sku}
  time: {column: changed, unit: s}
  available_until: gone
  features: {brand: {kind: categorical, column: make}, weight: {kind: number, column: weight}}
  vectors: {words: {kind: text, columns: [title, make]}, image: {kind: vector, column: pixels}}
split: {seed: 1, train: [0, 1], valid: [0, 0.5], test: [0.5, 1]}
"""
TIMES = "  time: {column: changed, unit: s}\n"


def load(folder, text=VALID):
    (folder / "mine.yaml").write_text(text)
    return load_dataset("mine", folder)


def test_features_of_items_are_features_of_events(tmp_path):
    dataset = load(tmp_path)
    assert list(dataset.all_features) == ["colour", "brand", "weight"]
    assert dataset.all_features["brand"].of_item
    assert not dataset.all_features["colour"].of_item
    assert dataset.event_schema().names == ["session_id", "item_id", "event_time", "row", "colour"]
    assert dataset.items.vectors["words"].length == 64


def test_the_table_is_read_like_a_log(tmp_path):
    table = item_table(load(tmp_path))
    assert dict(zip(table.event_schema().names, table.event_schema().types, strict=True)) == {
        "item_id": pa.string(),
        "event_time": pa.timestamp("us", "UTC"),
        "row": pa.int64(),
        "brand": pa.string(),
        "weight": pa.float64(),
        "available_until": pa.timestamp("us", "UTC"),
        "words": pa.string(),
        "image": pa.list_(pa.float32()),
    }
    assert table.event_columns() == {
        "item_id": ("sku",),
        "event_time": ("changed",),
        "brand": ("make",),
        "weight": ("weight",),
        "available_until": ("gone",),
        "words": ("title", "make"),
        "image": ("pixels",),
    }


def test_without_a_time_other_times_are_read_like_those_of_events(tmp_path):
    table = item_table(load(tmp_path, VALID.replace(TIMES, "")))
    assert "event_time" not in table.event_columns()
    assert "event_time" not in table.event_schema().names
    assert table.time.zone == "Europe/Oslo"


def test_a_data_set_without_the_section_has_no_table(tmp_path):
    start, end = VALID.index("items:\n"), VALID.index("split:")
    assert item_table(load(tmp_path, VALID[:start] + VALID[end:])) is None


def test_environment_variables_are_filled_in(tmp_path, monkeypatch):
    text = VALID.replace("[items.csv]", "['${oc.env:SHOP}/items.csv']")
    monkeypatch.setenv("SHOP", "/shop")
    assert load(tmp_path, text).items.source.urls == ("/shop/items.csv",)
    monkeypatch.delenv("SHOP")
    with pytest.raises(ConfigError, match=r"items\.source\.urls: .*'SHOP' not found"):
        load(tmp_path, text)


def test_other_sections_may_name_columns_of_the_table(tmp_path):
    text = VALID.replace("item}}", "item}, title: brand}")
    text += "quality: {nulls: {brand: 0.5, words: 0, available_until: 1}, negative: {weight: 0}}\n"
    text = text.replace(
        "{kind: categorical, column: colour}}",
        "{kind: categorical, column: colour}, "
        "cheap: {kind: relative_number, column: price, relative_to: brand}}",
    )
    dataset = load(tmp_path, text)
    assert dataset.columns.title == dataset.features["cheap"].relative_to == "brand"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{column: sku}", "{column: sku, type: int}", "items.item_id.type: int, but columns.item"),
        ("  source: {urls: [items.csv]}\n", "", "items.source: needed, unless source.synthetic"),
        ("brand: {kind: cat", "colour: {kind: cat", "items: colour: a feature has this name"),
        ("words: {kind: text", "brand: {kind: text", "items: brand: a feature has this name"),
        ("brand: {kind: cat", "item_id: {kind: cat", "features: item_id: reserved column names"),
        ("image: {kind", "first_window: {kind", "features: first_window: reserved column names"),
        ("changed, unit: s", "changed, complete_until: 2026-01-01T00:00:00Z", "complete_until"),
        ("changed, unit: s", "changed, settle: 30min", "time.settle: that of events holds"),
        ("number, column: weight", "relative_number, column: weight, relative_to: brand",
         "features.weight: relative_number is of events; items have categorical, number, log"),
        ("number, column: weight", "hour", "features.weight: hour is of events"),
        ("column: make}", "column: make, min_count: 2}", "brand.min_count: values of a table"),
        ("column: weight}", "column: weight, fit: look_ahead}", "fit: look_ahead: a table"),
        ("columns: [title, make]", "columns: []", "text needs some columns"),
        ("columns: [title, make]", "columns: [title], column: a", "text needs no column"),
        ("kind: vector, column: pixels", "kind: vector", "vector needs a column"),
        ("column: pixels", "column: pixels, columns: [a]", "vector needs no columns"),
        ("column: pixels", "column: pixels, dimensions: 9", "vector needs no dimensions"),
        ("[title, make]}", "[title, make], dimensions: 1}", "greater than or equal to 2"),
        ("{urls: [items.csv]}", "{synthetic: {seed: 1, days: 2, sessions_per_day: 9, n_items: 9, "
         "n_topics: 2, start: 2026-01-01T00:00:00Z}}", "leave out items.source"),
        ("split:", "quality: {nulls: {weigth: 0}}\nsplit:", "nulls: weigth: did you mean weight"),
        ("split:", "quality: {negative: {brand: 0}}\nsplit:", "quality.negative: brand: expected"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, old, new, message):
    assert VALID.count(old) == 1
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, VALID.replace(old, new))
