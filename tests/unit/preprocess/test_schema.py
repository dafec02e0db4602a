import itertools
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from merlin.schema import Tags
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

from dayahead.core.columns import ROLES
from dayahead.preprocess.schema import window_schema
from support.builders import TWO_DAYS, TWO_DAYS_FEATURES, dataset_config
from support.window_folders import tiny_statistics


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


def test_past_events_stand_in_columns_of_their_own():
    without = tiny_statistics(["price"])
    own = window_schema(without)
    assert own.names[3:] == ["item_id", "event_time", "price"]
    both = window_schema(replace(without, sessions=replace(without.sessions, past_max_length=5)))
    assert both.names == [*own.names, "bef_item_id", "bef_event_time", "bef_price"]
    for name in own.names[3:]:
        assert both.field(f"bef_{name}").type == both.field(name).type
