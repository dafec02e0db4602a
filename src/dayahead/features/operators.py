"""NVTabular operators of our own: vocabulary lookup, sine and cosine of the clock, item age.

Columns pass through Arrow, so each works on pandas and on cudf frames alike. A frame's event_time
is int64, microseconds since 1970, UTC: pandas 1.5 knows nanoseconds only, which end in 2262.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.delayed import Delayed, delayed
from merlin.dag import ColumnSelector
from merlin.schema import Tags
from numpy.typing import NDArray
from nvtabular.ops import Operator, StatOperator

from dayahead.core.columns import EVENT_TIME, FIRST_TIME, ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError
from dayahead.features.vocabulary import indices_of

Frame = Any
"""A pandas or a cudf data frame."""
Series = Any
"""One of its columns."""
DAY = 24 * 60 * 60 * 1_000_000
"""Microseconds."""
AGE_SCALE = float(np.log1p(30))
"""Item age drifts as a log grows, so a constant scales it, unless a statistic is asked for."""


class Categorical:
    """What the Merlin schema is told of numbers that stand for values."""

    @property
    def output_dtype(self) -> type:
        """Type of an index."""
        return np.int32

    @property
    def output_tags(self) -> list[Tags]:
        """Tags in the Merlin schema."""
        return [Tags.CATEGORICAL]


class Continuous:
    """What the Merlin schema is told of numbers that are measured."""

    @property
    def output_dtype(self) -> type:
        """Type of a number."""
        return np.float32

    @property
    def output_tags(self) -> list[Tags]:
        """Tags in the Merlin schema."""
        return [Tags.CONTINUOUS]


class LookUp(Categorical, Operator):  # type: ignore[misc]
    """Raw values of one column into indices of its vocabulary; null and unheard of: 1."""

    def __init__(self, vocabulary: pa.Table, tags: tuple[Tags, ...] = ()) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.tags = tags

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the column by int32 indices."""
        return _numbered(df, dict.fromkeys(col_selector.names, self.vocabulary))

    @property
    def output_tags(self) -> list[Tags]:
        """Tags in the Merlin schema."""
        return [*super().output_tags, *self.tags]


class Categorise(Categorical, StatOperator):  # type: ignore[misc]
    """What Categorify does, through Arrow: values numbered in order of their first occurrence.

    Numbers are as LookUp's. Fitted over Dask partitions, taken in their order; `values` then holds
    each column's, without the reserved numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, pa.Array] = {}

    def fit(self, col_selector: ColumnSelector, ddf: dd.DataFrame) -> Delayed:
        """Find the distinct values of every partition and merge them."""
        names = list(col_selector.names)
        found = [delayed(_distinct)(part, names) for part in ddf[names].to_delayed()]
        return delayed(_merged)(found)

    def fit_finalize(self, dask_stats: dict[str, pa.Array]) -> None:
        """Keep the values."""
        self.values = dask_stats

    def clear(self) -> None:
        """Forget the values."""
        self.values = {}

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the columns by int32 numbers."""
        names = col_selector.names
        return _numbered(df, {name: pa.table({VALUE: self.values[name]}) for name in names})


def _numbered(df: Frame, vocabularies: Mapping[str, pa.Table]) -> Frame:
    """Replace columns by int32 indices."""
    return type(df)(
        {
            name: indices_of(arrow(df[name], held.schema.field(VALUE).type), held).to_numpy()
            for name, held in vocabularies.items()
        }
    )


def _distinct(df: Frame, names: list[str]) -> dict[str, pa.Array]:
    return {name: arrow(df[name]).unique().drop_null() for name in names}


def _merged(found: list[dict[str, pa.Array]]) -> dict[str, pa.Array]:
    return {name: pa.chunked_array([part[name] for part in found]).unique() for name in found[0]}


class _Made(Continuous, Operator):  # type: ignore[misc]
    """An operator that makes new columns of numbers from all its input columns together."""

    outputs: tuple[str, ...]

    @abstractmethod
    def values(self, df: Frame) -> list[NDArray[np.floating[Any]]]:
        """Compute the columns, in the order of `outputs`."""

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Give the new columns alone."""
        columns = zip(self.outputs, self.values(df), strict=True)
        return type(df)({name: values.astype(self.output_dtype) for name, values in columns})

    def column_mapping(self, col_selector: ColumnSelector) -> dict[str, list[str]]:
        """Every output comes from every input."""
        return {name: list(col_selector.names) for name in self.outputs}


class _Cyclic(_Made):
    """Sine and cosine of the time gone by since a cycle began, on the clocks of a zone."""

    def __init__(self, name: str, timezone: str) -> None:
        super().__init__()
        self.outputs = (f"{name}_sin", f"{name}_cos")
        self.timezone = timezone

    @abstractmethod
    def phase(self, local: NDArray[np.int64]) -> NDArray[np.float64]:
        """Share of the cycle gone by, in [0, 1)."""

    def values(self, df: Frame) -> list[NDArray[np.floating[Any]]]:
        """Sine, then cosine."""
        angle = 2 * np.pi * self.phase(local_time(_int64(df[EVENT_TIME]), self.timezone))
        return [np.sin(angle), np.cos(angle)]


class TimeOfDay(_Cyclic):
    """The hour, with its minutes and seconds: midnight is (0, 1), noon (0, -1)."""

    def phase(self, local: NDArray[np.int64]) -> NDArray[np.float64]:
        """Share of the day gone by."""
        return (local % DAY) / DAY


class DayOfWeek(_Cyclic):
    """The weekday, whole: Monday is (0, 1)."""

    def phase(self, local: NDArray[np.int64]) -> NDArray[np.float64]:
        """Days since Monday, over 7; 1 January 1970 was a Thursday."""
        return ((local // DAY + 3) % 7) / 7


class ItemAge(_Made):
    """log1p of the days since an item's first event: 0 when new.

    Reads item_id as index (after LookUp) and event_time; an unknown item is new.
    """

    def __init__(self, name: str, items: pa.Table) -> None:
        super().__init__()
        self.outputs = (name,)
        first = items[FIRST_TIME].cast(pa.int64()).to_numpy()
        # The reserved indices begin at the end of time: their age comes out as 0.
        self.first_times = np.concatenate([np.full(N_RESERVED, np.iinfo(np.int64).max), first])

    def values(self, df: Frame) -> list[NDArray[np.floating[Any]]]:
        """Age, not yet scaled; an event before the item's first (an overrun) counts as age 0."""
        age = np.maximum(_int64(df[EVENT_TIME]) - self.first_times[_int64(df[ITEM_ID])], 0) / DAY
        return [np.log1p(age)]

    @property
    def output_dtype(self) -> type:
        """Type of an age."""
        return np.float64


def arrow(column: Series, type_: pa.DataType | None = None) -> pa.Array:
    """Give a column to Arrow; NaN is null."""
    if isinstance(column, pd.Series):
        return pa.array(column, type_, from_pandas=True)
    return column.to_arrow() if type_ is None else column.to_arrow().cast(type_)


def _int64(column: Series) -> NDArray[np.int64]:
    return np.asarray(arrow(column, pa.int64()).to_numpy())


def local_time(instants: NDArray[np.int64], timezone: str) -> NDArray[np.int64]:
    """What the clocks of `timezone` show, as if their readings were UTC (microseconds).

    Raises:
        ConfigError: the zone is not known.
    """
    index = pd.DatetimeIndex(instants.astype("datetime64[us]")).tz_localize("UTC")
    try:
        local: NDArray[np.int64] = index.tz_convert(timezone).tz_localize(None).asi8 // 1000
    except (KeyError, ValueError):  # pytz's unknown zone is a KeyError
        raise ConfigError(
            f"params.yaml: window.timezone: no such zone (got {timezone!r}); "
            f"expected an IANA name such as Europe/Oslo"
        ) from None
    return local
