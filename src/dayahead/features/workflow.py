"""Raw events into model input: the NVTabular workflow, fitted once and rebuilt from plain files.

The same workflow, built from statistics.json and the vocabularies, encodes the windows and a live
session, so the two cannot differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from merlin.schema import ColumnSchema, Schema, Tags
from nvtabular import Workflow
from nvtabular.workflow.node import WorkflowNode

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_ID, TIMESTAMP
from dayahead.core.types import Device
from dayahead.features.arrays import repeated
from dayahead.features.grouping import GroupSessions, SliceLists
from dayahead.features.inputs import frame_of, input_types, inputs, table_of
from dayahead.features.numbers import NumberOperators
from dayahead.features.operators import DayOfWeek, LookUp, TimeOfDay
from dayahead.windows.metadata import Statistics

Vocabularies = Mapping[str, pa.Table]
"""Vocabulary tables by column: item_id and every categorical feature."""


def build_workflow(
    statistics: Statistics, vocabularies: Vocabularies, window: str | None = None
) -> Workflow:
    """Rebuild the fitted workflow, row by row: item_id first, then every feature's columns.

    A feature fitted on each window takes `window`, or the newest.
    """
    node = _rows(statistics, vocabularies, window)
    return _with_inputs(node, list(input_types(statistics)))


def encode(
    events: pa.Table,
    statistics: Statistics,
    vocabularies: Vocabularies,
    device: Device = "cpu",
    window: str | None = None,
) -> pa.Table:
    """Encode raw events, row by row: item_id and every feature's columns, int32 or float32.

    A feature column that is missing counts as null: index 1, or the mean of a number.
    """
    schema = pa.schema(encoded_columns(statistics).items())
    if len(events) == 0:  # Merlin loses the columns of empty frames
        return schema.empty_table()
    workflow = build_workflow(statistics, vocabularies, window)
    encoded = workflow.transform(frame_of(inputs(events, input_types(statistics)), device))
    return table_of(encoded).select(schema.names).cast(schema)


def encode_sessions(
    events: pa.Table,
    sessions: np.ndarray[Any, Any],
    statistics: Statistics,
    vocabularies: Vocabularies,
    device: Device = "cpu",
    window: str | None = None,
) -> pa.Table:
    """Encode raw events, and list them by session.

    Args:
        events: as for `encode`, in the order of the lists.
        sessions: int64, a number per event, ascending.
        statistics: statistics.json.
        vocabularies: by column; what they do not hold becomes 1 (unknown).
        device: where to compute.
        window: whose statistics to take, where every window has its own; null: the newest's.

    Returns:
        One row per session: item_id, event_time and the features as lists.
    """
    rows = _rows(statistics, vocabularies, window)
    return _listed_by(rows, events, sessions, statistics, device)


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
        data set's rule for repeats is applied; of what is left the last max_length - 1 events are
        listed, as many as a model reads before a target.
    """
    if ROW not in events.column_names:
        events = events.append_column(ROW, pa.array(np.arange(len(events))))
    events = events.sort_by([(EVENT_TIME, "ascending"), (ROW, "ascending")])
    codes = events[ITEM_ID].combine_chunks().dictionary_encode().indices.to_numpy()
    one = np.zeros(len(events), dtype=np.int64)
    rules = statistics.sessions
    events = events.filter(pa.array(~repeated(one, codes.astype(np.int64), rules.repeats)))
    rows = _rows(statistics, vocabularies, None)
    cut = SliceLists(1 - rules.max_length)
    return _listed_by(rows, events, one[: len(events)], statistics, "cpu", cut)


def encoded_columns(statistics: Statistics) -> dict[str, pa.DataType]:
    """Type of an event's value in every encoded column, in the order of a window file."""
    types = {ITEM_ID: pa.int32()}
    for feature in statistics.features.values():
        type_ = pa.int32() if feature.kind == "categorical" else pa.float32()
        types |= dict.fromkeys(feature.columns, type_)
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


def _rows(statistics: Statistics, vocabularies: Vocabularies, window: str | None) -> WorkflowNode:
    """The graph of what happens to every event."""
    items = [ITEM_ID] >> LookUp(vocabularies[ITEM_ID], (Tags.ITEM_ID, Tags.ID))
    nodes = [items]
    for name, feature in statistics.features.items():
        match feature.kind:
            case "categorical":
                nodes.append([name] >> LookUp(vocabularies[name]))
            case "hour":
                nodes.append([EVENT_TIME] >> TimeOfDay(name, statistics.timezone))
            case "weekday":
                nodes.append([EVENT_TIME] >> DayOfWeek(name, statistics.timezone))
            case _:
                number = NumberOperators.fitted(name, statistics.features, window)
                nodes.append(number.node(items, vocabularies[ITEM_ID]))
    return sum(nodes[1:], nodes[0])


def _listed_by(
    rows: WorkflowNode,
    events: pa.Table,
    sessions: np.ndarray[Any, Any],
    statistics: Statistics,
    device: Device,
    cut: SliceLists | None = None,
) -> pa.Table:
    """Run the events through the graph and group what comes out; `cut` the lists."""
    types = encoded_columns(statistics)
    types = {ITEM_ID: types.pop(ITEM_ID), EVENT_TIME: TIMESTAMP, **types}
    schema = pa.schema([(name, pa.list_(type_)) for name, type_ in types.items()])
    if len(events) == 0:
        return schema.empty_table()
    group = GroupSessions([SESSION_ID], [ROW], dict.fromkeys(types, "list"))
    names = [f"{name}_list" for name in types]
    lists = ((rows + EVENT_TIME + SESSION_ID + ROW) >> group)[names]
    table = inputs(events, input_types(statistics))
    table = table.append_column(SESSION_ID, pa.array(sessions))
    table = table.append_column(ROW, pa.array(np.arange(len(events))))
    workflow = _with_inputs(lists >> cut if cut else lists, table.column_names)
    found = table_of(workflow.transform(frame_of(table, device)))
    return found.select(names).rename_columns(schema.names).cast(schema)


def _with_inputs(node: WorkflowNode, columns: Sequence[str]) -> Workflow:
    return Workflow(node).fit_schema(Schema([ColumnSchema(name) for name in columns]))
