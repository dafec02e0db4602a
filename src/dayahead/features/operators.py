"""NVTabular operators: vocabulary lookup, cyclic time, item age, and the scales of numbers.

Columns pass through Arrow, so each works on pandas frames and on dicts of arrays alike. A frame's
event_time is int64, microseconds since 1970, UTC.
"""

from typing import Any, ClassVar

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray
from scipy.special import ndtri

from dayahead.core.columns import (
    DAY,
    EVENT_TIME,
    FIRST_TIME,
    ID_TYPES,
    ITEM_ID,
    N_RESERVED,
    VALUE,
    IdType,
)
from dayahead.core.errors import ConfigError
from dayahead.features.arrays import Ints
from dayahead.features.engine import ColumnSelector, LogOp, Normalize, Operator, StatOperator, Tags
from dayahead.features.vocabulary import KnownValues

Frame = Any
"""A pandas data frame, or a dict of arrays."""
Series = Any
"""One of its columns: a series, or an Arrow or a NumPy array."""
Floats = NDArray[np.float64]
LARGEST = float(np.finfo(np.float32).max)
MOST_DEVIATIONS = 1000.0
"""Standardised numbers are at most so many standard deviations from the mean."""
N_KNOTS = 1001
"""Number of quantiles that represent a distribution."""
N_PARTITION_KNOTS = 10 * N_KNOTS
"""Number of quantiles that represent a partition of it."""


class LookUp(Operator):  # type: ignore[misc]
    """Raw values of one column to indices of its vocabulary; null and unknown values to 1.

    `n_known` is as for `KnownValues.indices`, for the rows of the one frame that is transformed.
    """

    output_dtype = np.int32

    def __init__(
        self, vocabulary: pa.Table, tags: tuple[Tags, ...] = (), n_known: Ints | None = None
    ) -> None:
        super().__init__()
        self.known = KnownValues(vocabulary[VALUE])
        self.tags = tags
        self.n_known = n_known

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the column by int32 indices."""
        (name,) = col_selector.names
        values = to_arrow(df[name], self.known.values.type)
        return type(df)({name: self.known.indices(values, self.n_known)})

    @property
    def output_tags(self) -> list[Tags]:
        """Tags in the Merlin schema."""
        return [Tags.CATEGORICAL, *self.tags]


class Continuous:
    """Output of numeric operators as the Merlin schema describes it.

    With `outputs`, these are new columns, each made from all input columns.
    """

    outputs: tuple[str, ...] = ()
    output_dtype: type = np.float32
    output_tags: ClassVar = [Tags.CONTINUOUS]

    def column_mapping(self, col_selector: ColumnSelector) -> dict[str, list[str]]:
        """Input columns of each output column."""
        if not self.outputs:
            return {name: [name] for name in col_selector.names}
        return {name: list(col_selector.names) for name in self.outputs}


class CyclicTime(Continuous, Operator):  # type: ignore[misc]
    """Sine and cosine of the event time's position in the day or week, on a time zone's clock.

    The hour includes minutes and seconds: midnight is (0, 1), noon (0, -1). The weekday is a whole
    number of days: Monday is (0, 1).
    """

    def __init__(self, name: str, kind: str, timezone: str) -> None:
        super().__init__()
        self.outputs = (f"{name}_sin", f"{name}_cos")
        self.kind = kind
        self.timezone = timezone

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Return both columns."""
        local = local_time(_int64(df[EVENT_TIME]), self.timezone)
        # 1 January 1970 was a Thursday.
        share = (local % DAY) / DAY if self.kind == "hour" else ((local // DAY + 3) % 7) / 7
        angle = 2 * np.pi * share
        columns = zip(self.outputs, (np.sin(angle), np.cos(angle)), strict=True)
        return type(df)({name: values.astype(np.float32) for name, values in columns})


class ItemAge(Continuous, Operator):  # type: ignore[misc]
    """log1p of the days since an item's first event, float64, not scaled: 0 when new.

    Reads item_id as index (after LookUp) and event_time; an unknown item has age 0.
    """

    output_dtype = np.float64

    def __init__(self, name: str, items: pa.Table) -> None:
        super().__init__()
        self.outputs = (name,)
        first = items[FIRST_TIME].cast(pa.int64()).to_numpy()
        # Reserved indices get the latest time there is, so that their age is 0.
        self.first_times = np.concatenate([np.full(N_RESERVED, np.iinfo(np.int64).max), first])

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Return the ages; an event before the item's first (an overrun) has age 0."""
        age = np.maximum(_int64(df[EVENT_TIME]) - self.first_times[_int64(df[ITEM_ID])], 0) / DAY
        return type(df)({self.outputs[0]: np.log1p(age)})


class Log1p(LogOp):  # type: ignore[misc]
    """log(1 + x) in float64; NVTabular's is float32, and the scaler sums in the input's precision.

    Sums in float32 differ from the seventh digit on between versions of NumPy, which add in another
    order.
    """

    output_dtype = np.float64


class FixedScale(Continuous, Operator):  # type: ignore[misc]
    """Divide by a constant."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Columns as float32; nulls stay."""
        scaled = {name: df[name] / self.divisor for name in col_selector.names}
        return type(df)({name: values.astype(np.float32) for name, values in scaled.items()})


class Standardise(Continuous, Normalize):  # type: ignore[misc]
    """(x - mean) / std; numbers that never varied while fitting are centred alone.

    What is further away is cut off at MOST_DEVIATIONS: no network learns from 1e38.
    """

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Columns as float32; nulls stay."""
        return type(df)({name: self._scaled(name, floats(df[name])) for name in col_selector.names})

    def _scaled(self, name: str, numbers: Floats) -> NDArray[np.float32]:
        deviations: Floats = (numbers - self.means[name]) / (self.stds[name] or 1.0)
        return deviations.clip(-MOST_DEVIATIONS, MOST_DEVIATIONS).astype(np.float32)


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
        self.known = KnownValues(dask_stats["category"].filter(pa.array(named)))
        self.means = sums[named] / counts[named]

    def clear(self) -> None:
        """Discard the means."""
        self.known = KnownValues(pa.array([], self.type))
        self.means = np.empty(0)
        self.overall_mean = 0.0

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the number by the relative number; a null stays."""
        category = self.known.positions(to_arrow(df[self.category], self.type))
        mean = np.append(self.means, self.overall_mean)[category]
        number = floats(df[self.name])
        # number * 0: the result is 0 where the mean is 0, and NaN where the number is missing.
        with np.errstate(over="ignore"):  # where the mean is close to 0
            ratio = np.divide(number - mean, mean, out=number * 0, where=mean != 0)
        return type(df)({self.name: np.clip(ratio, -LARGEST, LARGEST)})

    def _sums(self, df: Frame) -> pa.Table:
        """Sum and count of the numbers that are not null, by category."""
        category = to_arrow(df[self.category], self.type)
        number = to_arrow(df[self.name], pa.float64())
        table = pa.table({"category": category, "x": number}).filter(number.is_valid())
        # With several threads, Arrow guarantees no order of the groups.
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
        return type(df)({name: self._scaled(floats(df[name])) for name in col_selector.names})

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


def to_arrow(column: Series, type_: pa.DataType) -> pa.Array:
    """Convert a column of a frame to Arrow; NaN becomes null."""
    return pa.array(column, type_, from_pandas=True)


def _int64(column: Series) -> NDArray[np.int64]:
    return np.asarray(to_arrow(column, pa.int64()).to_numpy())


def local_time(instants: NDArray[np.int64], timezone: str) -> NDArray[np.int64]:
    """Return the local clock time of instants, as if it were UTC (both in microseconds).

    Raises:
        ConfigError: the zone is not known.
    """
    index = pd.DatetimeIndex(instants.astype("datetime64[us]")).tz_localize("UTC")
    try:
        local = index.tz_convert(timezone).tz_localize(None)
    except (KeyError, ValueError):  # an unknown zone is a KeyError
        raise ConfigError(
            f"params.yaml: window.timezone: no such zone (got {timezone!r}); "
            f"expected an IANA name such as Europe/Oslo"
        ) from None
    return np.asarray(local.as_unit("us").asi8)


def floats(column: Series) -> Floats:
    """Null as NaN."""
    return np.asarray(to_arrow(column, pa.float64()).to_numpy(zero_copy_only=False))


def _merge_sums(partitions: list[pa.Table]) -> pa.Table:
    sums = pa.concat_tables(partitions).group_by("category", use_threads=False)
    return sums.aggregate([("x_sum", "sum"), ("x_count", "sum")])


def _partition_quantiles(column: Series) -> tuple[Floats, float, int]:
    """Quantiles, how many numbers each represents, and the number of numbers."""
    numbers = floats(column)
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
    """Numbers at evenly spaced ranks among `n`; all numbers if there are few."""
    if not n:
        return np.empty(0)
    return np.interp(np.linspace(0, n - 1, min(n, n_knots)), ranks, numbers)
