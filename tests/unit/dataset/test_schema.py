"""datasets/*.yaml: all load, the template explains every key, errors are named."""

import re
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from dayahead.core.errors import ConfigError
from dayahead.dataset.features import FeatureConfig
from dayahead.dataset.schema import DatasetConfig, load_dataset

DATASETS = Path(__file__).parents[3] / "datasets"
NAMES = sorted(path.stem for path in DATASETS.glob("*.yaml"))
VALID = """\
description: for a test
licence: none
source: {urls: [a.csv]}
columns: {session_id: session, item_id: {column: item}}
time: {column: time}
sessions: {repeats: {rule: keep, scope: session}}
features: {}
split: {seed: 1, train: [0, 1], valid: [0, 0.5], test: [0.5, 1]}
"""
SYNTHETIC = (
    "{seed: 1, days: 2, sessions_per_day: 9, n_items: 9, n_topics: 2, start: 2026-01-01T00:00:00Z}"
)


def load(folder: Path, text: str) -> DatasetConfig:
    (folder / "mine.yaml").write_text(text)
    return load_dataset("mine", folder)


def feature(text: str, message: str) -> tuple[str, str, str]:
    return "features: {}", f"features: {{x: {{kind: {text}}}}}", message


def test_the_data_sets_of_the_paper_ship():
    assert {"synthetic", "g1", "rees46", "yoochoose", "adressa", "diginetica"} <= set(NAMES)


def test_the_event_table_has_these_columns(tmp_path):
    text = VALID.replace("session_id: session, ", "session_id: session, user_id: user, "
                         "session_start: begin, ")  # fmt: skip
    features = "{brand: {kind: categorical, column: b, type: int}, hour: {kind: hour}, "
    features += "colour: {kind: categorical, column: c}, price: {kind: number, column: p}}"
    dataset = load(tmp_path, text.replace("features: {}", f"features: {features}"))
    schema = dataset.event_schema()
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "session_id": pa.string(),
        "user_id": pa.string(),
        "item_id": pa.string(),
        "event_time": pa.timestamp("us", "UTC"),
        "row": pa.int64(),
        "session_start": pa.timestamp("us", "UTC"),
        "brand": pa.int64(),
        "colour": pa.string(),
        "price": pa.float64(),
    }
    assert dataset.event_columns() == {
        "session_id": ("session",),
        "user_id": ("user",),
        "item_id": ("item",),
        "event_time": ("time",),
        "session_start": ("begin",),
        "brand": ("b",),
        "colour": ("c",),
        "price": ("p",),
    }
    assert load(tmp_path, VALID).event_schema().names == [
        "session_id",
        "item_id",
        "event_time",
        "row",
    ]


def test_ids_may_be_columns_with_a_type_or_several_columns(tmp_path):
    """The event table's columns, and whether a session's id holds its user's."""
    for session, user, holds_user in (
        ("visit", "user", False),
        ("{column: visit, type: int}", "user", False),
        ("[user, {column: visit, type: int}]", "{column: user, type: int}", True),
        ("[day, visit]", "[shop, user]", False),
        ("[shop, visit, user]", "[shop, user]", True),
    ):
        text = VALID.replace("session_id: session", f"session_id: {session}, user_id: {user}")
        dataset = load(tmp_path, text)
        assert dataset.event_schema().field("session_id").type == pa.string()
        assert dataset.columns.session_holds_user == holds_user
    assert dataset.event_columns()["session_id"] == ("shop", "visit", "user")
    assert dataset.event_columns()["user_id"] == ("shop", "user")


def test_a_feature_may_be_called_as_a_column_that_is_not_there(tmp_path):
    text = VALID.replace("features: {}", "features: {event_type: {kind: categorical, column: e}}")
    assert load(tmp_path, text).event_columns()["event_type"] == ("e",)
    both = text.replace("{column: item}", "{column: item}, event_type: e")
    assert load(tmp_path, both).event_schema().names.count("event_type") == 1
    for other in ("{kind: categorical, column: x}", "{kind: categorical, column: e, type: int}",
                  "{kind: hour}"):  # fmt: skip
        with pytest.raises(ConfigError, match="features: event_type: reserved column names"):
            load(tmp_path, both.replace("{kind: categorical, column: e}", other))


def test_a_retry_is_within_the_session(tmp_path):
    text = VALID.replace("session_id: session", "user_id: user")
    text = text.replace("{repeats:", "{gap_minutes: 1, retry_seconds: 60, repeats:")
    assert load(tmp_path, text).sessions.retry_seconds == 60
    with pytest.raises(ConfigError, match=r"retry_seconds \(61\) is longer than gap_minutes \(1\)"):
        load(tmp_path, text.replace("60", "61"))


def test_sessions_that_gaps_cut_have_no_column_of_their_start(tmp_path):
    text = VALID.replace("{repeats:", "{gap_minutes: 30, repeats:")
    with pytest.raises(ConfigError, match=r"columns\.session_start: .* with sessions\.gap_minutes"):
        load(tmp_path, text.replace("session_id: session", "user_id: user, session_start: begin"))


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_that_ships_loads(name, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", "/logs")
    dataset = load_dataset(name, DATASETS)
    assert all(url.startswith(("https://", "/logs/")) for url in dataset.source.urls)
    assert "$" not in "".join(dataset.source.urls)


def keys_of(cls: Any) -> set[str]:
    """Every key that a settings class and those within it know."""
    found = set()
    for field in fields(cls):
        found.add(field.name)
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and is_dataclass(inner):
                found |= keys_of(inner)
    return found


def test_the_template_explains_every_key():
    text = (DATASETS / "template.yaml").read_text()
    keys = keys_of(DatasetConfig) | keys_of(FeatureConfig)
    assert {key for key in keys if not re.search(rf"\b{key}:", text)} == set()


def test_the_template_loads_with_its_alternatives(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", "/logs")
    text = (DATASETS / "template.yaml").read_text()
    for key in (
        *("header", "session_start", "title", "event_type", "event_id"),
        *("name", "offset", "offset_unit", "gap_minutes"),
    ):
        text, n = re.subn(rf"^( *)# ({key}:)", r"\1\2", text, flags=re.MULTILINE)
        assert n == 1
    load(tmp_path, re.sub(r"^ *gap_minutes:.*\n", "", text, flags=re.MULTILINE))
    text = re.sub(r"^ *session_(id|start):.*\n", "", text, flags=re.MULTILINE)
    dataset = load(tmp_path, text)
    assert dataset.sessions.gap_minutes == 30
    assert dataset.time.complete_until == datetime(2026, 2, 1, tzinfo=UTC)


def test_environment_variables_are_filled_in(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    text = VALID.replace("a.csv", "'https://x/${oc.env:MY_KEY}'")
    assert load(tmp_path, text).source.urls == ("https://x/secret",)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match=r"mine\.yaml: source\.urls: .*'MY_KEY' not found.; set"):
        load(tmp_path, text)
    with pytest.raises(ConfigError, match=r"'MY_KEY' not found.; ask the shop"):
        load(tmp_path, text.replace("source: {", "source: {manual: ask the shop, "))


def test_the_end_of_the_log_may_be_an_environment_variable(tmp_path, monkeypatch):
    text = VALID.replace("time: {", "time: {complete_until: '${oc.env:UNTIL}', ")
    assert text != VALID
    for value, expected in (
        ("2026-03-07T00:00:00+01:00", datetime(2026, 3, 6, 23, tzinfo=UTC)),
        ("yesterday", "yesterday"),
    ):
        monkeypatch.setenv("UNTIL", value)
        assert load(tmp_path, text).time.complete_until == expected
    monkeypatch.delenv("UNTIL")
    with pytest.raises(ConfigError, match=r"time\.complete_until: .*'UNTIL' not found.; set the"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("urls: [a.csv]", "format: csv", "give either urls or synthetic"),
        ("urls: [a.csv]", "urls: [a.csv], format: xml", "source.format"),
        ("urls: [a.csv]", "urls: [a.csv], url: b", "source.url"),
        ("urls: [a.csv]", "urls: ['duckdb://a'], format: sql", "query: needed for format sql"),
        ("urls: [a.csv]", "urls: [a], format: sql, query: SELECT 1", "urls: format sql reads post"),
        ("urls: [a.csv]", "urls: [a.csv], query: SELECT 1", "query: needed for format sql, and"),
        ("urls: [a.csv]", "urls: [a], format: delta, query: SELECT 1", "query: needed for format"),
        ("urls: [a.csv]", "urls: [a.csv], order: [n]", "order: rows of files have one"),
        ("urls: [a.csv]", "urls: [a], format: delta, sha256: {a: b}", "sha256: checks files"),
        ("session_id: session, ", "", "give either columns.session_id or sessions.gap_minutes"),
        ("{repeats:", "{gap_minutes: 30, repeats:", "give either columns.session_id or sessions"),
        ("scope: session", "scope: user", "columns.user_id is needed"),
        ("session_id: session, ", "session_id: [], ", "columns.session_id"),
        ("item}}", "item}, event_type: e}\nquality: {nulls: {x: 0}}", "event_type"),
        ("{repeats:", "{retry_seconds: 0, repeats:", "sessions.retry_seconds"),
        ("{repeats:", "{duplicates: maybe, repeats:", "sessions.duplicates"),
        ("time: {column: time}", "time: {column: time, zone: Oslo}", "unknown time zone 'Oslo'"),
        ("session_id: session, ", "session_id: session, title: x, ", "title: x is no categorical"),
        ("features: {}", "features: {price: {kind: number}}", "number needs a column"),
        ("features: {}", "features: {hour: {kind: hour, column: x}}", "hour needs no column"),
        ("features: {}", "features: {Price: {kind: hour}}", "features.Price"),
        feature("number, column: x, min_count: 2", "number needs no type, min_count and of_item"),
        feature("number, column: x, type: int", "number needs no type, min_count and of_item"),
        feature("hour, scale: fixed", "hour needs no scale"),
        feature("relative_number, column: x", "relative_number needs a relative_to"),
        feature("number, column: x, relative_to: y", "number needs no relative_to"),
        feature(
            "relative_number, column: x, relative_to: y",
            "features.x.relative_to: y is no categorical feature of this data set",
        ),
        feature(
            "relative_number, column: x, relative_to: x",
            "features.x.relative_to: x is no categorical feature of this data set",
        ),
        feature(
            "number, column: x, scale: fixed, fit: look_ahead",
            "fit: look_ahead: nothing of this number is fitted; leave it out, or give another",
        ),
        feature("item_age, fit: look_ahead_window", "nothing of this item_age is fitted"),
        feature("hour, fit: look_ahead", "nothing of this hour is fitted"),
        feature(
            "categorical, column: x, fit: look_ahead",
            "nothing of this categorical is fitted; leave it out, or give min_count",
        ),
        feature(
            "categorical, column: x, min_count: 2, fit: look_ahead_window",
            "fit: look_ahead_window: a vocabulary is the same for all windows",
        ),
        (
            "features: {}",
            "features: {hour: {kind: hour}, hour_sin: {kind: item_age}}",
            "features: hour_sin: two features give this column",
        ),
        (
            "features: {}",
            "features: {bef_x: {kind: hour}, user_id: {kind: hour}}",
            "features: bef_x, user_id: reserved column names",
        ),
        (
            "licence: none",
            "licence: none\nquality: {nulls: {price: 0.5}}",
            "quality.nulls: price: expected some of session_id, item_id, event_time",
        ),
        (
            "licence: none",
            "licence: none\nquality: {nulls: {itemid: 0.5}}",
            "nulls: itemid: did you mean item_id",
        ),
        (
            "licence: none",
            "licence: none\nquality: {negative: {item_id: 0.5}}",
            "quality.negative: item_id: expected some of none",
        ),
        ("urls: [a.csv]", "urls: [a.csv], delimiter: '-----'", "source.delimiter"),
        ("urls: [a.csv]", "urls: [a.csv], delimiter: ',\"'", "contains quote"),
        ("urls: [a.csv]", "urls: [a.csv], escape: '\"'", "escape and quote are both"),
        ("urls: [a.csv]", "urls: [a.csv], escape: ','", "delimiter and escape are both"),
        ("urls: [a.csv]", "urls: [a.csv], encoding: utf8x", "unknown encoding 'utf8x'"),
        ("urls: [a.csv]", "urls: [a.csv], encoding: base64", "unknown encoding 'base64'"),
        ("urls: [a.csv]", "urls: [a.csv], explode: events", "explode needs format jsonl"),
        ("urls: [a.csv]", "urls: [a.csv], where: {type: []}", "source.where.type"),
        ("urls: [a.csv]", "urls: [a.csv], delimiter: ''", "source.delimiter"),
        (
            "urls: [a.csv]",
            'urls: [a.csv], delimiter: "\\r"',
            "source.delimiter: expected one",
        ),
        (
            "urls: [a.csv]",
            "urls: [a.csv], quote: \u201c",
            "source.quote: expected one ASCII",
        ),
        ("urls: [a.csv]", "urls: [a.csv], quote: ','", "delimiter and quote are both ','"),
        ("urls: [a.csv]", "urls: [a.csv], members: ['']", "expected a file name or a glob"),
        ("urls: [a.csv]", "urls: [a.csv], members: ['*', .]", "source.members.1: "),
        ("urls: [a.csv]", "urls: [a.csv], members: []", "source.members: Tuple should have"),
        ("urls: [a.csv]", "urls: [a.csv, b.csv, a.csv]", "urls: entry 3 equals an earlier one"),
        ("column: time}", "column: time, zone: ''}", "unknown time zone ''"),
        ("scope: session}", "scope: session}, gap_minutes: .inf", "sessions.gap_minutes"),
        ("scope: session}", "scope: session}, max_length: 10000000000", "sessions.max_length"),
        feature(
            "relative_number, column: a, relative_to: ''",
            "relative_to: String should have at least 1",
        ),
        ("urls: [a.csv]", f"synthetic: {SYNTHETIC.replace('days: 2', 'days: 100000000')}", "days"),
        ("urls: [a.csv]", f"synthetic: {SYNTHETIC.replace('seed: 1', 'seed: -1')}", "seed"),
        ("urls: [a.csv]", f"synthetic: {SYNTHETIC.replace('2026-', '9999-')}", "start: expected a"),
        (
            "urls: [a.csv]",
            f"synthetic: {SYNTHETIC.replace('s: 2,', 's: 10,')}",
            "n_topics: expected",
        ),
        ("urls: [a.csv]", "urls: [a.csv], thousands: '.'", "decimal and thousands are both '.'"),
        ("urls: [a.csv]", "urls: [a.csv], thousands: '0'", "source.thousands"),
        ("valid: [0, 0.5]", "valid: [0.5, 0]", "valid: [0.5, 0.0]: expected the lower end first"),
        ("train: [0, 1]", "train: [0, 2]", "split.train"),
        ("licence: none\n", "", "licence: Field required"),
    ],
)
def test_the_error_is_named(tmp_path, old, new, message):
    assert old in VALID
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(tmp_path, VALID.replace(old, new, 1))


def test_files_that_are_no_data_set_are_rejected(tmp_path):
    load(tmp_path, VALID)
    with pytest.raises(ConfigError, match=r"no such data set; .*expected some of mine"):
        load_dataset("other", tmp_path)
    with pytest.raises(ConfigError, match="expected a mapping"):
        load(tmp_path, "- a list\n")
    with pytest.raises(ConfigError, match=r"source: Input should be"):
        load(tmp_path, VALID.replace("{urls: [a.csv]}", "a.csv"))
