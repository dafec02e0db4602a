"""NVTabular operators for vocabulary lookup, cyclic time and item age.

Columns pass through Arrow, so each works on pandas and on cudf frames alike. A frame's event_time
is int64, microseconds since 1970, UTC: pandas 1.5 knows nanoseconds only, which end in 2262.
"""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from merlin.dag import ColumnSelector
from merlin.schema import Tags
from numpy.typing import NDArray
from nvtabular.ops import Operator

from dayahead.core.columns import EVENT_TIME, FIRST_TIME, ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError
from dayahead.features.vocabulary import lookup_indices

Frame = Any
"""A pandas or a cudf data frame."""
Series = Any
"""One of its columns."""
DAY = 24 * 60 * 60 * 1_000_000
"""Microseconds."""


class LookUp(Operator):  # type: ignore[misc]
    """Raw values of one column to indices of its vocabulary; null and unknown values to 1."""

    output_dtype = np.int32

    def __init__(self, vocabulary: pa.Table, tags: tuple[Tags, ...] = ()) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.tags = tags

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Replace the column by int32 indices."""
        (name,) = col_selector.names
        values = to_arrow(df[name], self.vocabulary.schema.field(VALUE).type)
        return type(df)({name: lookup_indices(values, self.vocabulary).to_numpy()})

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

    Reads item_id as index (after LookUp) and event_time; an unknown item is new.
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


def to_arrow(column: Series, type_: pa.DataType) -> pa.Array:
    """Convert a column of a frame to Arrow; NaN becomes null."""
    if isinstance(column, pd.Series):
        return pa.array(column, type_, from_pandas=True)
    return column.to_arrow().cast(type_)


def _int64(column: Series) -> NDArray[np.int64]:
    return np.asarray(to_arrow(column, pa.int64()).to_numpy())


def local_time(instants: NDArray[np.int64], timezone: str) -> NDArray[np.int64]:
    """Return the local clock time of instants, as if it were UTC (both in microseconds).

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
