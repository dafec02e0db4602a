"""A feature's operators in sequence: as part of a workflow, or on arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import rshift
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dayahead.core.columns import ITEM_ID
from dayahead.features.engine import (
    Clip,
    ColumnSelector,
    FillMissing,
    LogOp,
    Operator,
    WorkflowNode,
)

Columns = Mapping[str, Any]
"""Arrow or NumPy arrays by name; numbers are NumPy's, with NaN for null."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Chain:
    """The first operator reads `inputs`, every other one the output of the one before it.

    The input item_id is the item's index, not its raw id.
    """

    inputs: tuple[str, ...]
    operators: tuple[Operator, ...]

    def node(self, items: WorkflowNode) -> WorkflowNode:
        """Graph of the operators; `items` has the items' indices."""
        raw = [name for name in self.inputs if name != ITEM_ID]
        columns = sum(raw, items) if ITEM_ID in self.inputs else raw
        return reduce(rshift, self.operators, columns)

    def transform(self, columns: Columns) -> Columns:
        """Compute the same without a workflow."""
        columns = {name: columns[name] for name in self.inputs}
        for operator in self.operators:
            columns = _transform(operator, columns)
        return columns


def _transform(operator: Operator, columns: Columns) -> Columns:
    """Compute NVTabular's operators here; ours read frames and arrays alike."""
    for type_, function in ON_ARRAYS.items():
        if isinstance(operator, type_):
            return {name: function(operator, name, array) for name, array in columns.items()}
    found: Columns = operator.transform(ColumnSelector(list(columns)), columns)
    return found


def _clip(operator: Clip, _: str, array: Array) -> Array:
    return np.where(array < operator.min_value, operator.min_value, array)


def _fill(operator: FillMissing, _: str, array: Array) -> Array:
    return np.where(np.isnan(array), operator.fill_val, array)


def _log(operator: LogOp, _: str, array: Array) -> Array:
    return np.asarray(np.log(array.astype(operator.output_dtype) + 1))


ON_ARRAYS: dict[type[Operator], Callable[[Any, str, Array], Array]] = {
    Clip: _clip,
    FillMissing: _fill,
    LogOp: _log,
}
"""NVTabular's operators on an array: from operator, name of the column, and column."""
