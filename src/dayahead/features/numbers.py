"""Features of one number: what becomes of the raw number, and what was fitted to do so."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from nvtabular.ops import Clip, FillMissing, LogOp, Normalize
from nvtabular.workflow.node import WorkflowNode

from dayahead.core.columns import EVENT_TIME
from dayahead.features.operators import AGE_SCALE, ItemAge
from dayahead.features.scalers import FixedScale, GaussRank, RelativeTo

VALUE_TYPES = {"int": pa.int64(), "string": pa.string()}
Entry = Mapping[str, Any]
"""A feature's part of statistics.json."""


class NumberOperators:
    """The NVTabular operators of one such feature, to be fitted or fitted before.

    Args:
        name: the feature.
        kind: one of NUMBER_FEATURES.
        scale: standard, gauss_rank or fixed.
        relative_to: of a relative_number, its category and the category's type.
    """

    def __init__(
        self, name: str, kind: str, scale: str, relative_to: tuple[str, str] | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.relative: RelativeTo | None = None
        if relative_to is not None:
            self.relative = RelativeTo(name, relative_to[0], VALUE_TYPES[relative_to[1]])
        match scale:
            case "standard":
                self.scale = Normalize(out_dtype=np.float32)
            case "gauss_rank":
                self.scale = GaussRank()
            case _:
                self.scale = FixedScale(AGE_SCALE if kind == "item_age" else 1.0)

    @classmethod
    def fitted(
        cls, name: str, entries: Mapping[str, Entry], window: str | None
    ) -> "NumberOperators":
        """Rebuild them from the features' entries; `window` matters where each has its own."""
        entry = entries[name]
        if "windows" in entry:
            entry = {**entry, **entry["windows"][window or max(entry["windows"])]}
        scale = "gauss_rank" if "knots" in entry else "standard" if "mean" in entry else "fixed"
        category = entry.get("relative_to")
        relative_to = category and (category, entries[category]["type"])
        operators = cls(name, entry["kind"], scale, relative_to)
        operators._restore(entry)
        return operators

    def node(self, items: WorkflowNode, vocabulary: pa.Table) -> WorkflowNode:
        """From the raw column, or of item_age from the looked-up `items`, to float32 without null.

        A null is the mean, 0. Logarithms take what is below 0 for 0.
        """
        match self.kind:
            case _ if self.relative:
                raw = [self.name, self.relative.category] >> self.relative
            case "log_number":
                raw = [self.name] >> Clip(min_value=0) >> LogOp()
            case "item_age":
                raw = (items + EVENT_TIME) >> ItemAge(self.name, vocabulary)
            case _:
                raw = [self.name]
        return raw >> self.scale >> FillMissing(0)

    def entry(self) -> dict[str, Any]:
        """What was fitted, for statistics.json."""
        found: dict[str, Any] = {}
        if self.relative:
            found["relative_to"] = self.relative.category
            found["values"] = self.relative.values.to_pylist()
            found["means"] = self.relative.means.tolist()
            found["overall_mean"] = self.relative.overall_mean
        if isinstance(self.scale, Normalize):
            found["mean"] = _finite(self.scale.means[self.name])
            found["std"] = _finite(self.scale.stds[self.name])
        if isinstance(self.scale, GaussRank):
            found["knots"], found["n"] = self.scale.knots.tolist(), self.scale.n
        return found

    def _restore(self, entry: Entry) -> None:
        if self.relative:
            self.relative.values = pa.array(entry["values"], self.relative.type)
            self.relative.means = np.array(entry["means"], dtype=np.float64)
            self.relative.overall_mean = entry["overall_mean"]
            self.relative.fitted = True
        if isinstance(self.scale, Normalize):
            self.scale.means = {self.name: entry["mean"]}
            self.scale.stds = {self.name: entry["std"]}
        if isinstance(self.scale, GaussRank):
            self.scale.knots = np.array(entry["knots"], dtype=np.float64)
            self.scale.n = entry["n"]
        self.scale.fitted = True


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
