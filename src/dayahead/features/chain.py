"""A feature's operators in sequence: as part of a workflow, or on arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import rshift
from typing import Any

import numpy as np

from dayahead.core.columns import ITEM_ID
from dayahead.features.engine import Clip, ColumnSelector, FillMissing, Operator, WorkflowNode

Columns = Mapping[str, Any]
"""Arrow or NumPy arrays by name; numbers are NumPy's, with NaN for null."""


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
    match operator:  # NVTabular computes the first two on data frames only
        case Clip():
            low = operator.min_value
            return {name: np.where(array < low, low, array) for name, array in columns.items()}
        case FillMissing():
            fill = operator.fill_val
            return {n: np.where(np.isnan(array), fill, array) for n, array in columns.items()}
        case _:
            found: Columns = operator.transform(ColumnSelector(list(columns)), columns)
            return found
