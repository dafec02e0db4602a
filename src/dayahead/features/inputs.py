"""Columns of the event table as frames for a workflow, and frames as tables."""

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from merlin.core.compat import cudf

from dayahead.core.columns import EVENT_TIME, ITEM_ID, TIMESTAMP
from dayahead.core.types import Device
from dayahead.dataset.schema import SCALED_FEATURES
from dayahead.features.numbers import VALUE_TYPES
from dayahead.features.operators import Frame
from dayahead.windows.metadata import Statistics

Types = Mapping[str, pa.DataType]
"""Types of a workflow's input columns."""


def input_types(statistics: Statistics) -> dict[str, pa.DataType]:
    """Types of the workflow's input columns."""
    types = {ITEM_ID: VALUE_TYPES[statistics.item_type], EVENT_TIME: pa.int64()}
    for name, entry in statistics.features.items():
        if entry.type is not None:
            types[name] = VALUE_TYPES[entry.type]
        elif entry.kind in SCALED_FEATURES and entry.kind != "item_age":
            types[name] = pa.float64()
    return types


def inputs(events: pa.Table, types: Types) -> pa.Table:
    """The workflow's input columns in their types; infinities and NaN become null."""
    columns = {}
    for name, type_ in types.items():
        if name == EVENT_TIME:
            columns[name] = events[name].cast(TIMESTAMP).cast(type_)
        elif name not in events.column_names:
            columns[name] = pa.nulls(len(events), type_)
        elif type_ == pa.float64():
            columns[name] = _finite_or_null(events[name])
        else:
            columns[name] = events[name].cast(type_)
    return pa.table(columns)


def frame_of(table: pa.Table, device: Device) -> Frame:
    """Give a table to the device."""
    if device == "cuda":
        return cudf.DataFrame.from_arrow(table)
    # Int64 keeps 19-digit ids exact beside nulls, where numpy would turn them into floats.
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def table_of(frame: Frame) -> pa.Table:
    """Take a frame back."""
    if isinstance(frame, pd.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    return frame.to_arrow(preserve_index=False).replace_schema_metadata()


def _finite_or_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = column.cast(pa.float64())
    return pc.if_else(pc.is_finite(column), column, None)
