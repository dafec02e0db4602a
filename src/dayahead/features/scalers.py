"""NVTabular operators that put numbers on a scale: ranks, averages of categories, constants."""

from typing import Any

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dask.delayed import Delayed, delayed
from merlin.dag import ColumnSelector
from numpy.typing import NDArray
from nvtabular.ops import Operator, StatOperator
from scipy.special import ndtri

from dayahead.features.operators import Continuous, Frame, Series, arrow

Floats = NDArray[np.float64]

N_KNOTS = 1001
"""Quantiles that stand for a distribution."""
N_PART_KNOTS = 10 * N_KNOTS
"""Quantiles that stand for a partition of it."""


class FixedScale(Continuous, Operator):  # type: ignore[misc]
    """Divide by a constant."""

    def __init__(self, divisor: float = 1.0) -> None:
        super().__init__()
        self.divisor = divisor

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Columns as float32; nulls stay."""
        return (df[col_selector.names] / self.divisor).astype(np.float32)


class RelativeTo(Continuous, StatOperator):  # type: ignore[misc]
    """A number x of a category whose mean is m: (x - m) / m, and 0 where m is 0.

    A category not met while fitting, null among them, has the mean over all rows.
    """

    def __init__(self, name: str, category: str, type_: pa.DataType) -> None:
        super().__init__()
        self.name = name
        self.category = category
        self.type = type_
        self.values: pa.Array = pa.array([], type_)
        self.means: Floats = np.empty(0)
        self.overall_mean = 0.0

    def fit(self, col_selector: ColumnSelector, ddf: dd.DataFrame) -> Delayed:
        """Add up every partition's numbers by category."""
        parts = ddf[[self.category, self.name]].to_delayed()
        return delayed(_merged_sums)([delayed(self._sums)(part) for part in parts])

    def fit_finalize(self, dask_stats: pa.Table) -> None:
        """Divide the sums."""
        sums, counts = (dask_stats[name].to_numpy() for name in ("sum", "count"))
        self.overall_mean = float(sums.sum() / max(counts.sum(), 1))
        named = dask_stats["category"].is_valid().to_numpy()
        self.values = dask_stats["category"].filter(pa.array(named)).combine_chunks()
        self.means = sums[named] / counts[named]

    def clear(self) -> None:
        """Forget the means."""
        self.values, self.means, self.overall_mean = pa.array([], self.type), np.empty(0), 0.0

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """The relative number in place of the number; a null stays."""
        category = arrow(df[self.category], self.type)
        found = pc.index_in(category, value_set=self.values, skip_nulls=True)
        mean = np.append(self.means, self.overall_mean)[found.fill_null(-1).to_numpy()]
        number = _floats(df[self.name])
        ratio = np.divide(number - mean, mean, out=number * 0, where=mean != 0)
        return type(df)({self.name: ratio})

    def _sums(self, df: Frame) -> pa.Table:
        """Sum and count of the numbers that are not null, by category."""
        category, number = arrow(df[self.category], self.type), arrow(df[self.name], pa.float64())
        table = pa.table({"category": category, "x": number}).filter(number.is_valid())
        sums = table.group_by("category", use_threads=False)
        named = sums.aggregate([("x", "sum"), ("x", "count")])
        return named.rename_columns({"x_sum": "sum", "x_count": "count"})

    def column_mapping(self, col_selector: ColumnSelector) -> dict[str, list[str]]:
        """One output, of two inputs."""
        return {self.name: [self.name, self.category]}

    @property
    def output_dtype(self) -> type:
        """Type of a ratio."""
        return np.float64


class GaussRank(Continuous, StatOperator):  # type: ignore[misc]
    """The normal quantile of a number's rank among those fitted, (rank - 1/2) / n.

    Equal numbers have their mean rank; a number between two has a rank between theirs, one beyond
    all the first or last. Up to 1,001 numbers are kept as they are, more as 1,001 quantiles (taken
    of 10,010 quantiles of every partition). As Jahrer's "RankGauss" (Porto Seguro, 2017), but for
    the share, which is there fitted to (-1, 1) with a constant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.knots: Floats = np.empty(0)
        self.n = 0

    def fit(self, col_selector: ColumnSelector, ddf: dd.DataFrame) -> Delayed:
        """Take quantiles of every partition's numbers, then of those."""
        (name,) = col_selector.names
        return delayed(_quantiles)([delayed(_part_quantiles)(p) for p in ddf[name].to_delayed()])

    def fit_finalize(self, dask_stats: tuple[Floats, int]) -> None:
        """Keep the knots."""
        self.knots, self.n = dask_stats

    def clear(self) -> None:
        """Forget the knots."""
        self.knots, self.n = np.empty(0), 0

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
        place = np.where(equal > 0, below + (equal - 1) / 2, below - 1 + (numbers - left) / step)
        rank = np.clip(place, 0, last) * ((self.n - 1) / max(last, 1))
        return np.where(np.isnan(numbers), np.nan, ndtri((rank + 0.5) / self.n)).astype(np.float32)


def _floats(column: Series) -> Floats:
    """Null as NaN."""
    return np.asarray(arrow(column, pa.float64()).to_numpy(zero_copy_only=False))


def _merged_sums(parts: list[pa.Table]) -> pa.Table:
    sums = pa.concat_tables(parts).group_by("category", use_threads=False)
    merged = sums.aggregate([("sum", "sum"), ("count", "sum")])
    return merged.rename_columns({"sum_sum": "sum", "count_sum": "count"})


def _part_quantiles(column: Series) -> tuple[Floats, float, int]:
    """Quantiles, how many numbers each stands for, and how many there are."""
    numbers = _floats(column)
    numbers = np.sort(numbers[~np.isnan(numbers)])
    knots = _at(numbers, np.arange(len(numbers)), N_PART_KNOTS, len(numbers))
    return knots, len(numbers) / max(len(knots), 1), len(numbers)


def _quantiles(parts: list[tuple[Floats, float, int]]) -> tuple[Floats, int]:
    """Quantiles of all, and how many numbers there are."""
    n = sum(part[2] for part in parts)
    knots = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([np.full(len(part[0]), part[1]) for part in parts])
    order = np.argsort(knots, kind="stable")
    places = np.cumsum(weights[order]) - weights[order] / 2 - 0.5
    return _at(knots[order], places, N_KNOTS, n), n


def _at(numbers: Floats, places: NDArray[Any], n_knots: int, n: int) -> Floats:
    """Numbers at evenly spaced places in the order of `n`: all of them, if they are few."""
    if not n:
        return np.empty(0)
    return np.interp(np.linspace(0, n - 1, min(n, n_knots)), places, numbers)
