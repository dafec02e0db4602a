"""Features of one number: what becomes of the raw number, and what was fitted to do so."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from nvtabular.ops import Clip, FillMissing, LogOp, Normalize
from nvtabular.workflow.node import WorkflowNode

from dayahead.core.columns import EVENT_TIME
from dayahead.features.operators import AGE_SCALE, ItemAge
from dayahead.features.scalers import FixedScale, GaussRank, RelativeTo
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics

VALUE_TYPES = {"int": pa.int64(), "string": pa.string()}


class NumberOperators:
    """The NVTabular operators of one such feature, to be fitted or fitted before.

    Args:
        name: the feature.
        kind: one of SCALED_FEATURES.
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
        cls, name: str, features: Mapping[str, FeatureStatistics], window: str | None
    ) -> "NumberOperators":
        """Rebuild them from the features' statistics; `window` matters where each has its own."""
        entry = features[name].fitted_at(window)
        is_standard = entry.mean is not None
        scale = "gauss_rank" if entry.knots is not None else "standard" if is_standard else "fixed"
        relative_to = None
        if entry.relative_to is not None:
            relative_to = entry.relative_to, features[entry.relative_to].type or "string"
        operators = cls(name, features[name].kind, scale, relative_to)
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

    def statistics(self) -> NumberStatistics:
        """What was fitted, for statistics.json."""
        found = NumberStatistics()
        if self.relative:
            found = replace(
                found,
                relative_to=self.relative.category,
                values=self.relative.values.to_pylist(),
                means=self.relative.means.tolist(),
                overall_mean=self.relative.overall_mean,
            )
        if isinstance(self.scale, Normalize):
            mean, std = self.scale.means[self.name], self.scale.stds[self.name]
            found = replace(found, mean=_finite(mean), std=_finite(std))
        if isinstance(self.scale, GaussRank):
            found = replace(found, knots=self.scale.knots.tolist(), n=self.scale.n)
        return found

    def _restore(self, entry: NumberStatistics) -> None:
        if self.relative:
            self.relative.values = pa.array(entry.values, self.relative.type)
            self.relative.means = np.array(entry.means, dtype=np.float64)
            self.relative.overall_mean = entry.overall_mean or 0.0
            self.relative.fitted = True
        if isinstance(self.scale, Normalize):
            self.scale.means = {self.name: entry.mean}
            self.scale.stds = {self.name: entry.std}
        if isinstance(self.scale, GaussRank):
            self.scale.knots = np.array(entry.knots, dtype=np.float64)
            self.scale.n = entry.n or 0
        self.scale.fitted = True


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
