"""Numeric features: their NVTabular operators, fitted or rebuilt from statistics.json."""

from typing import Any

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dask.delayed import Delayed, delayed
from merlin.dag import ColumnSelector
from numpy.typing import NDArray
from nvtabular.ops import Clip, FillMissing, LogOp, Normalize, Operator, StatOperator
from nvtabular.workflow.node import WorkflowNode
from scipy.special import ndtri

from dayahead.core.columns import EVENT_TIME, ID_TYPES, IdType
from dayahead.features.operators import Continuous, Frame, ItemAge, Series, to_arrow
from dayahead.windows.metadata import NumberStatistics, Statistics

Floats = NDArray[np.float64]

AGE_SCALE = float(np.log1p(30))
"""Item age drifts as a log grows, so it is divided by a constant, unless its scale is fitted."""
N_KNOTS = 1001
"""Quantiles that stand for a distribution."""
N_PARTITION_KNOTS = 10 * N_KNOTS
"""Quantiles that stand for a partition of it."""


class FixedScale(Continuous, Operator):  # type: ignore[misc]
    """Divide by a constant."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Columns as float32; nulls stay."""
        return (df[col_selector.names] / self.divisor).astype(np.float32)


class RelativeTo(Continuous, StatOperator):  # type: ignore[misc]
    """A number x of a category whose mean is m: (x - m) / m, and 0 where m is 0.

    A category that did not occur while fitting, null among them, has the mean over all rows.
    """

    output_dtype = np.float64

    def __init__(self, name: str, category: str, type_: IdType) -> None:
        super().__init__()
        self.outputs = (name,)
        self.name = name
        self.category = category
        self.type = ID_TYPES[type_]
        self.clear()

    def fit(self, col_selector: ColumnSelector, ddf: dd.DataFrame) -> Delayed:
        """Sum every partition's numbers by category."""
        partitions = ddf[[self.category, self.name]].to_delayed()
        return delayed(_merge_sums)([delayed(self._sums)(partition) for partition in partitions])

    def fit_finalize(self, dask_stats: pa.Table) -> None:
        """Divide the sums by the counts."""
        sums, counts = (dask_stats[name].to_numpy() for name in ("x_sum_sum", "x_count_sum"))
        self.overall_mean = float(sums.sum() / max(counts.sum(), 1))
        named = dask_stats["category"].is_valid().to_numpy()
        self.values = dask_stats["category"].filter(pa.array(named)).combine_chunks()
        self.means = sums[named] / counts[named]

    def clear(self) -> None:
        """Discard the means."""
        self.values = pa.array([], self.type)
        self.means = np.empty(0)
        self.overall_mean = 0.0

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the number by the relative number; a null stays."""
        category = to_arrow(df[self.category], self.type)
        found = pc.index_in(category, value_set=self.values, skip_nulls=True)
        mean = np.append(self.means, self.overall_mean)[found.fill_null(-1).to_numpy()]
        number = _floats(df[self.name])
        ratio = np.divide(number - mean, mean, out=number * 0, where=mean != 0)
        return type(df)({self.name: ratio})

    def _sums(self, df: Frame) -> pa.Table:
        """Sum and count of the numbers that are not null, by category."""
        category = to_arrow(df[self.category], self.type)
        number = to_arrow(df[self.name], pa.float64())
        table = pa.table({"category": category, "x": number}).filter(number.is_valid())
        sums = table.group_by("category", use_threads=False)
        return sums.aggregate([("x", "sum"), ("x", "count")])


class GaussRank(Continuous, StatOperator):  # type: ignore[misc]
    """The normal quantile of a number's rank among those fitted, (rank - 1/2) / n.

    Equal numbers have their mean rank; a number between two has a rank between theirs, one beyond
    all the first or last. Up to 1,001 numbers are kept as they are, more as 1,001 quantiles (taken
    of 10,010 quantiles of every partition). After Jahrer's "RankGauss" (Porto Seguro, 2017), which
    maps ranks to (-1, 1) with a constant instead of (rank - 1/2) / n.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def fit(self, col_selector: ColumnSelector, ddf: dd.DataFrame) -> Delayed:
        """Take quantiles of every partition's numbers, then of those."""
        (name,) = col_selector.names
        partitions = ddf[name].to_delayed()
        return delayed(_quantiles)([delayed(_partition_quantiles)(p) for p in partitions])

    def fit_finalize(self, dask_stats: tuple[Floats, int]) -> None:
        """Set the quantiles."""
        self.knots, self.n = dask_stats

    def clear(self) -> None:
        """Discard the quantiles."""
        self.knots = np.empty(0)
        self.n = 0

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Columns as float32; nulls stay."""
        return type(df)({name: self._scaled(_floats(df[name])) for name in col_selector.names})

    def _scaled(self, numbers: Floats) -> NDArray[np.float32]:
        if not self.n:
            return (numbers * 0).astype(np.float32)
        last = len(self.knots) - 1
        below = np.searchsorted(self.knots, numbers, "left")
        equal = np.searchsorted(self.knots, numbers, "right") - below
        left, right = (self.knots[np.clip(k, 0, last)] for k in (below - 1, below))
        step = np.where(right > left, right - left, 1)
        knot = np.where(equal > 0, below + (equal - 1) / 2, below - 1 + (numbers - left) / step)
        rank = np.clip(knot, 0, last) * ((self.n - 1) / max(last, 1))
        return np.where(np.isnan(numbers), np.nan, ndtri((rank + 0.5) / self.n)).astype(np.float32)


class NumberOperators:
    """The operators of one numeric feature, to be fitted or rebuilt from its statistics.

    `category` is the categorical feature of a relative_number, and its type.
    """

    def __init__(
        self, name: str, kind: str, scaling: str, category: tuple[str, IdType] | None
    ) -> None:
        self.name = name
        self.kind = kind
        self.relative = RelativeTo(name, *category) if category else None
        match scaling:
            case "standard":
                self.scaler = Normalize(out_dtype=np.float32)
            case "gauss_rank":
                self.scaler = GaussRank()
            case _:
                self.scaler = FixedScale(AGE_SCALE if kind == "item_age" else 1.0)

    @classmethod
    def from_statistics(
        cls, name: str, statistics: Statistics, window: str | None
    ) -> "NumberOperators":
        """Rebuild fitted operators; `window` matters where each has its own statistics."""
        feature = statistics.features[name]
        fitted = feature.fitted_at(window)
        category = statistics.category_of(name, window)
        operators = cls(name, feature.kind, fitted.scaling, category)
        if operators.relative:
            operators.relative.values = pa.array(fitted.values, operators.relative.type)
            operators.relative.means = np.array(fitted.means, dtype=np.float64)
            operators.relative.overall_mean = fitted.overall_mean or 0.0
            operators.relative.fitted = True
        if fitted.scaling == "standard":
            operators.scaler.means, operators.scaler.stds = {name: fitted.mean}, {name: fitted.std}
        elif fitted.scaling == "gauss_rank":
            operators.scaler.knots, operators.scaler.n = np.array(fitted.knots), fitted.n
        operators.scaler.fitted = True
        return operators

    def node(self, items: WorkflowNode, vocabulary: pa.Table) -> WorkflowNode:
        """Graph from the raw column (of item_age: from `items`, looked up) to float32, no nulls.

        A null becomes the mean, 0. log_number takes numbers below 0 as 0.
        """
        match self.kind:
            case "relative_number" if self.relative:
                raw = [self.name, self.relative.category] >> self.relative
            case "log_number":
                raw = [self.name] >> Clip(min_value=0) >> LogOp()
            case "item_age":
                raw = (items + EVENT_TIME) >> ItemAge(self.name, vocabulary)
            case _:
                raw = [self.name]
        return raw >> self.scaler >> FillMissing(0)

    def statistics(self) -> NumberStatistics:
        """What was fitted; with nothing to fit a mean is 0."""
        fitted: dict[str, Any] = {}
        if self.relative:
            fitted["relative_to"] = self.relative.category
            fitted["values"] = self.relative.values.to_pylist()
            fitted["means"] = self.relative.means.tolist()
            fitted["overall_mean"] = self.relative.overall_mean
        if isinstance(self.scaler, Normalize):
            mean, std = self.scaler.means[self.name], self.scaler.stds[self.name]
            fitted["mean"] = float(np.nan_to_num(mean, posinf=0, neginf=0))
            fitted["std"] = float(np.nan_to_num(std, posinf=0, neginf=0))
        if isinstance(self.scaler, GaussRank):
            fitted |= {"knots": self.scaler.knots.tolist(), "n": self.scaler.n}
        return NumberStatistics(**fitted)


def _floats(column: Series) -> Floats:
    """Null as NaN."""
    return np.asarray(to_arrow(column, pa.float64()).to_numpy(zero_copy_only=False))


def _merge_sums(partitions: list[pa.Table]) -> pa.Table:
    sums = pa.concat_tables(partitions).group_by("category", use_threads=False)
    return sums.aggregate([("x_sum", "sum"), ("x_count", "sum")])


def _partition_quantiles(column: Series) -> tuple[Floats, float, int]:
    """Quantiles, how many numbers each stands for, and how many there are."""
    numbers = _floats(column)
    numbers = np.sort(numbers[~np.isnan(numbers)])
    knots = _interpolate(numbers, np.arange(len(numbers)), N_PARTITION_KNOTS, len(numbers))
    return knots, len(numbers) / max(len(knots), 1), len(numbers)


def _quantiles(partitions: list[tuple[Floats, float, int]]) -> tuple[Floats, int]:
    """Quantiles over all partitions, and how many numbers there are."""
    n = sum(partition[2] for partition in partitions)
    knots = np.concatenate([partition[0] for partition in partitions])
    weights = np.concatenate([np.full(len(knots), weight) for knots, weight, _ in partitions])
    order = np.argsort(knots, kind="stable")
    ranks = np.cumsum(weights[order]) - weights[order] / 2 - 0.5
    return _interpolate(knots[order], ranks, N_KNOTS, n), n


def _interpolate(numbers: Floats, ranks: NDArray[Any], n_knots: int, n: int) -> Floats:
    """Numbers at evenly spaced ranks among `n`; all of them if they are few."""
    if not n:
        return np.empty(0)
    return np.interp(np.linspace(0, n - 1, min(n, n_knots)), ranks, numbers)
