"""Raw events into model input: the NVTabular workflow, fitted once and rebuilt from plain files.

The same workflow, built from statistics.json and the vocabularies, encodes the windows and a live
session, so the two cannot differ.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from merlin.core.compat import cudf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from nvtabular import Workflow
from nvtabular.ops import Clip, FillMissing, LogOp, Normalize
from nvtabular.workflow.node import WorkflowNode

from dayahead.columns import EVENT_TIME, ITEM_ID, ROW, TIMESTAMP
from dayahead.config.dataset import FeatureConfig
from dayahead.data.cluster import Device
from dayahead.data.operators import DayOfWeek, Frame, ItemAge, LookUp, TimeOfDay
from dayahead.data.sessions import repeated

VALUE_TYPES = {"int": pa.int64(), "string": pa.string()}
Statistics = Mapping[str, Any]
"""statistics.json."""
Vocabularies = Mapping[str, pa.Table]
"""Vocabulary tables by column: item_id and every categorical feature."""


def is_number(kind: str) -> bool:
    """Whether a feature is standardised."""
    return kind in ("number", "log_number")


def fitted(
    features: Mapping[str, FeatureConfig], paths: Sequence[Path], device: Device
) -> dict[str, dict[str, float]]:
    """Fit the numbers on train events, a Dask partition per file: mean and std by feature.

    A feature with nothing to fit has mean 0; one that does not vary has std 0 and is only centred.
    """
    numbers = {name: feature.kind for name, feature in features.items() if is_number(feature.kind)}
    if not numbers:
        return {}
    operators = {name: Normalize(out_dtype=np.float32) for name in numbers}
    nodes = [_number(name, kind, operators[name]) for name, kind in numbers.items()]
    frames = dd.from_map(_numbers, paths, columns=list(numbers), meta=_no_numbers(list(numbers)))
    dataset = Dataset(frames, cpu=device == "cpu")
    Workflow(sum(nodes[1:], nodes[0])).fit(dataset)
    return {
        name: {"mean": _finite(operator.means[name]), "std": _finite(operator.stds[name])}
        for name, operator in operators.items()
    }


def build_workflow(statistics: Statistics, vocabularies: Vocabularies) -> Workflow:
    """Rebuild the fitted workflow: item_id first, then every feature's columns."""
    items = [ITEM_ID] >> LookUp(vocabularies[ITEM_ID], (Tags.ITEM_ID, Tags.ID))
    nodes = [items]
    inputs = [ITEM_ID, EVENT_TIME]
    for name, entry in statistics["features"].items():
        match entry["kind"]:
            case "categorical":
                nodes.append([name] >> LookUp(vocabularies[name]))
                inputs.append(name)
            case "hour":
                nodes.append([EVENT_TIME] >> TimeOfDay(name, statistics["timezone"]))
            case "weekday":
                nodes.append([EVENT_TIME] >> DayOfWeek(name, statistics["timezone"]))
            case "item_age":
                nodes.append((items + EVENT_TIME) >> ItemAge(name, vocabularies[ITEM_ID]))
            case kind:
                nodes.append(_number(name, kind, _normalize(name, entry)))
                inputs.append(name)
    workflow = Workflow(sum(nodes[1:], nodes[0]))
    return workflow.fit_schema(Schema([ColumnSchema(name) for name in inputs]))


def encode(
    events: pa.Table, statistics: Statistics, vocabularies: Vocabularies, device: Device = "cpu"
) -> pa.Table:
    """Encode raw events, row by row: item_id and every feature's columns, int32 or float32.

    A feature column that is missing counts as null: index 1, or the mean of a number.
    """
    workflow = build_workflow(statistics, vocabularies)
    frame = _frame(_inputs(events, statistics, vocabularies), device)
    encoded = workflow.transform(frame)
    names = encoded_columns(statistics)
    table = (
        pa.Table.from_pandas(encoded, preserve_index=False)
        if isinstance(encoded, pd.DataFrame)
        else encoded.to_arrow(preserve_index=False)
    )
    return table.select(list(names)).cast(pa.schema(names.items())).replace_schema_metadata()


def encode_session(
    events: pa.Table, statistics: Statistics, vocabularies: Vocabularies
) -> pa.Table:
    """Turn a live session's raw events into one row of a window file's columns.

    Args:
        events: columns of the event table: item_id, event_time and the features' raw columns (a
            row number where times may be equal; else the order given decides).
        statistics: statistics.json.
        vocabularies: by column; what they do not hold becomes 1 (unknown).

    Returns:
        One row: item_id, event_time and the features as lists, in the order of the events. The
        data set's rule for repeats is applied; the length is not cut.
    """
    if ROW not in events.column_names:
        events = events.append_column(ROW, pa.array(np.arange(len(events))))
    events = events.sort_by([(EVENT_TIME, "ascending"), (ROW, "ascending")])
    encoded = encode(events, statistics, vocabularies)
    codes = events[ITEM_ID].combine_chunks().dictionary_encode().indices.to_numpy()
    drops = repeated(
        np.zeros(len(events), dtype=np.int64),
        codes.astype(np.int64),
        statistics["sessions"]["repeats"],
    )
    table = encoded.add_column(1, EVENT_TIME, events[EVENT_TIME].cast(TIMESTAMP))
    return listed(table.filter(pa.array(~drops)), np.zeros(1, dtype=np.int64))


def encoded_columns(statistics: Statistics) -> dict[str, pa.DataType]:
    """Type of an event's value in every encoded column, in the order of a window file."""
    types = {ITEM_ID: pa.int32()}
    for entry in statistics["features"].values():
        type_ = pa.int32() if entry["kind"] == "categorical" else pa.float32()
        types |= dict.fromkeys(entry["columns"], type_)
    return types


def listed(table: pa.Table, first: np.ndarray[Any, Any]) -> pa.Table:
    """Cut every column into lists that begin at the rows `first` (ascending, from 0)."""
    offsets = pa.array(np.append(first, len(table)).astype(np.int32))
    return pa.table(
        {
            name: pa.ListArray.from_arrays(offsets, table[name].combine_chunks())
            for name in table.column_names
        }
    )


def _number(name: str, kind: str, normalize: Normalize) -> WorkflowNode:
    """Standardise; nulls become the mean. Logarithms take what is below 0 for 0."""
    if kind == "log_number":
        return [name] >> Clip(min_value=0) >> LogOp() >> normalize >> FillMissing(0)
    return [name] >> normalize >> FillMissing(0)


def _normalize(name: str, entry: Mapping[str, float]) -> Normalize:
    operator = Normalize(out_dtype=np.float32)
    operator.means, operator.stds = {name: entry["mean"]}, {name: entry["std"]}
    operator.fitted = True
    return operator


def _inputs(events: pa.Table, statistics: Statistics, vocabularies: Vocabularies) -> pa.Table:
    """The workflow's input columns in their types; infinities and NaN become null."""
    types = {ITEM_ID: VALUE_TYPES[statistics["item_type"]]}
    for name, entry in statistics["features"].items():
        if entry["kind"] == "categorical":
            types[name] = VALUE_TYPES[entry["type"]]
        elif is_number(entry["kind"]):
            types[name] = pa.float64()
    columns = {EVENT_TIME: events[EVENT_TIME].cast(TIMESTAMP).cast(pa.int64())}
    for name, type_ in types.items():
        if name not in events.column_names:
            columns[name] = pa.nulls(len(events), type_)
        elif type_ == pa.float64():
            columns[name] = _finite_or_null(events[name])
        else:
            columns[name] = events[name].cast(type_)
    return pa.table(columns)


def _frame(table: pa.Table, device: Device) -> Frame:
    if device == "cuda":
        return cudf.DataFrame.from_arrow(table)
    # Int64 keeps 19-digit ids exact beside nulls, where numpy would turn them into floats.
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def _numbers(path: Path, columns: list[str]) -> pd.DataFrame:
    """Raw numbers of a window's train events."""
    table = pq.read_table(path, columns=columns, filters=pc.field("train"))
    return pa.table({name: _finite_or_null(table[name]) for name in columns}).to_pandas()


def _no_numbers(columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame({name: np.empty(0, dtype=np.float64) for name in columns})


def _finite_or_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = column.cast(pa.float64())
    return pc.if_else(pc.is_finite(column), column, None)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
