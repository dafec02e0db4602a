"""Schemas of a window file: Arrow's, and Merlin's with tags for other Merlin tools."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from merlin.schema import ColumnSchema, Schema, Tags
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    N_RESERVED,
    PAST_PREFIX,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.files import write_text
from dayahead.features.workflow import Vocabularies, build_workflow, encoded_columns
from dayahead.windows.metadata import Statistics


def window_schema(statistics: Statistics) -> pa.Schema:
    """Columns of a window file, in order; those of past events last, where there are any."""
    encoded = encoded_columns(statistics)
    lists = [
        pa.field(ITEM_ID, pa.list_(encoded.pop(ITEM_ID))),
        pa.field(EVENT_TIME, pa.list_(TIMESTAMP)),
        *(pa.field(name, pa.list_(type_)) for name, type_ in encoded.items()),
    ]
    has_past = statistics.sessions.past_max_length > 0
    return pa.schema(
        [
            pa.field(SESSION_ID, pa.string(), nullable=False),
            pa.field(USER_ID, pa.string()),
            pa.field(SESSION_START, TIMESTAMP, nullable=False),
            *lists,
            *(field.with_name(PAST_PREFIX + field.name) for field in lists if has_past),
        ]
    )


def write_merlin_schema(path: Path, statistics: Statistics, vocabularies: Vocabularies) -> None:
    """Write schema.pbtxt: tags, lengths of the lists, and domains of the categorical columns."""
    metadata = TensorflowMetadata.from_merlin_schema(_merlin_schema(statistics, vocabularies))
    for feature in metadata.proto_schema.feature:
        # Merlin keeps tags in a set, whose order changes from process to process.
        feature.annotation.tag.sort()
    write_text(path, metadata.to_proto_text())


def _merlin_schema(statistics: Statistics, vocabularies: Vocabularies) -> Schema:
    rules = statistics.sessions
    lengths = {"min": rules.min_length, "max": rules.max_length}
    time = ColumnSchema(EVENT_TIME, dtype="datetime64[us]", tags=[Tags.TIME])
    columns = [time, *build_workflow(statistics, vocabularies).output_schema]
    lists = [_list_column(column, lengths, vocabularies) for column in columns]
    past_length = {"min": 0, "max": rules.past_max_length}
    past = [_list_column(column, past_length, vocabularies) for column in columns]
    return Schema(
        [
            ColumnSchema(SESSION_ID, dtype="string", tags=[Tags.SESSION_ID]),
            ColumnSchema(USER_ID, dtype="string", tags=[Tags.USER_ID]),
            ColumnSchema(SESSION_START, dtype="datetime64[us]", tags=[Tags.SESSION, Tags.TIME]),
            *lists,
            *(each.with_name(PAST_PREFIX + each.name) for each in past if past_length["max"]),
        ]
    )


def _list_column(
    column: ColumnSchema, lengths: Mapping[str, int], vocabularies: Vocabularies
) -> ColumnSchema:
    """A column of lists of what `column` is one of."""
    properties: dict[str, Mapping[str, object]] = {"value_count": lengths}
    if column.name in vocabularies:
        size = N_RESERVED + len(vocabularies[column.name])
        properties["domain"] = {"name": column.name, "min": 0, "max": size - 1}
    return ColumnSchema(
        column.name,
        dtype=column.dtype.without_shape,
        tags=[*column.tags, Tags.SEQUENCE],
        properties=properties,
    )
