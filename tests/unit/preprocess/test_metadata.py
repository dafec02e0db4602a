import itertools
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dayahead.core.columns import ROLES
from dayahead.core.errors import ConfigError, DataError
from dayahead.features.engine import Tags, TensorflowMetadata
from dayahead.preprocess.event_log import read_event_log
from dayahead.preprocess.metadata import window_schema
from support.builders import (
    TWO_DAYS,
    TWO_DAYS_FEATURES,
    dataset_config,
    events,
    session,
)
from support.window_folders import tiny_statistics

USER = {"user_id": "user_id"}


def test_thin_windows_are_dropped_and_the_last_part_stays_open(run):
    table = events(
        [row for n in range(3) for row in session(f"a{n}", [1, 2], f"2026-01-01 0{n}:00")]
        + session("b0", [7, 8], "2026-01-02 01:00")
        + [row for n in range(3) for row in session(f"c{n}", [3, 1], f"2026-01-04 0{n}:00")]
        + [row for n in range(3) for row in session(f"d{n}", [9, 1], f"2026-01-05 0{n}:00")]
    )
    store = run(table, dataset_config(), min_sessions=3, log_end="2026-01-05 12:00")
    entries = store.manifest.windows
    assert [(entry.window, entry.state, entry.sessions) for entry in entries] == [
        ("2026-01-01", "kept", 3),
        ("2026-01-02", "dropped", 1),
        ("2026-01-03", "dropped", 0),
        ("2026-01-04", "kept", 3),
        ("2026-01-05", "open", 3),
    ]
    assert entries[1].why == "1 sessions, window.min_sessions asks for 3"
    assert "2026-01-05T12:00:00Z" in (entries[4].why or "")
    # Nothing of a dropped or open window is known.
    assert store.vocabulary("item_id")["value"].to_pylist() == [1, 2, 3]
    assert store.vocabulary("item_id")["events"].to_pylist() == [6, 3, 3]
    assert store.manifest.steps["dropped_windows"] == 8
    assert {path.name[19:29] for path in store.folder.glob("session_*")} == {
        "2026-01-01",
        "2026-01-04",
    }


def test_a_window_is_kept_only_when_its_grace_is_over(run):
    table = events(session("a", [1, 2], "2026-01-01 09:00"))
    with pytest.raises(DataError, match="1 are not over when the log ends"):
        run(table, dataset_config(), grace=60, log_end="2026-01-02 00:59")
    store = run(table, dataset_config(), grace=60, log_end="2026-01-02 01:00")
    assert [window.name for window in store.windows] == ["2026-01-01"]


class TestErrors:
    def test_no_log(self, tmp_path):
        with pytest.raises(DataError, match=r"raw/manifest\.json: not a readable manifest"):
            read_event_log(tmp_path / "raw", dataset_config())

    def test_an_empty_log(self, run):
        with pytest.raises(DataError, match="expected events, found none"):
            run(TWO_DAYS.slice(0, 0), dataset_config())

    def test_a_log_of_another_data_set(self, run):
        with pytest.raises(DataError, match="columns user_id of the data set's file are missing"):
            run(TWO_DAYS, dataset_config(columns=USER))

    def test_no_window_is_kept(self, run):
        message = r"none of 2 windows is kept: 2 have.*min_sessions \(100; the fullest has 2\)"
        with pytest.raises(DataError, match=message):
            run(TWO_DAYS, dataset_config(), min_sessions=100)

    def test_too_few_windows_to_fit_on(self, run):
        with pytest.raises(ConfigError, match="fit_windows: 3 windows to fit on, but only 2 kept"):
            run(TWO_DAYS, dataset_config(), fit_windows=3)

    def test_no_train_session_to_fit_on(self, run):
        with pytest.raises(DataError, match="no train session in 2026-01-01"):
            run(TWO_DAYS, dataset_config(split={"train": [0, 1e-9]}))

    def test_gap_sessions_of_no_user(self, run):
        table = events(session("a", [1, 2], "2026-01-01", user_id=None)).drop_columns(
            ["session_id"]
        )
        by_gap = dataset_config(columns={**USER, "session_id": None}, gap_minutes=30)
        with pytest.raises(DataError, match="no event names a user"):
            run(table, by_gap)


def test_columns_and_types_are_those_of_the_design(run):
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES, split={"test": [0, 1e-9]}))
    expected = pa.schema(
        [
            pa.field("session_id", pa.string(), nullable=False),
            pa.field("user_id", pa.string()),
            pa.field("session_start", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("item_id", pa.list_(pa.int32())),
            pa.field("event_time", pa.list_(pa.timestamp("us", "UTC"))),
            pa.field("colour", pa.list_(pa.int32())),
            *(
                pa.field(name, pa.list_(pa.float32()))
                for name in ["price", "hour_sin", "hour_cos", "age"]
            ),
        ]
    )
    for window, role in itertools.product(store.windows, ROLES):
        table = pq.read_table(store.path(window, role), partitioning=None)
        assert table.schema.equals(expected)  # a role without a session, too
    assert len(store.read(store.windows[0], "test", ["item_id"])) == 0


def test_the_merlin_schema_has_tags_and_domains(run):
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES))
    text = (store.folder / "schema.pbtxt").read_text()
    schema = TensorflowMetadata.from_proto_text(text).to_merlin_schema()
    assert schema.column_names[:3] == ["session_id", "user_id", "session_start"]
    assert {Tags.ITEM, Tags.ID, Tags.CATEGORICAL} <= set(schema["item_id"].tags)
    assert schema["item_id"].int_domain.max == 5
    assert schema["item_id"].is_ragged
    assert schema["item_id"].value_count.max == 20
    assert schema.select_by_tag(Tags.CONTINUOUS).column_names == [
        "price", "hour_sin", "hour_cos", "age",
    ]  # fmt: skip


def test_past_events_have_columns_of_their_own():
    without = tiny_statistics(["price"])
    own = window_schema(without)
    assert own.names[3:] == ["item_id", "event_time", "price"]
    both = window_schema(replace(without, sessions=replace(without.sessions, past_max_length=5)))
    assert both.names == [*own.names, "bef_item_id", "bef_event_time", "bef_price"]
    for name in own.names[3:]:
        assert both.field(f"bef_{name}").type == both.field(name).type
