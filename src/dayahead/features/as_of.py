"""Rows of a table as of a time: of each key the newest row that is not later."""

import numpy as np
import pyarrow as pa

from dayahead.features.arrays import Ints, codes_of
from dayahead.features.vocabulary import KnownValues


class AsOf:
    """Looks up rows by key and time.

    `keys` are grouped by value, and `times` (microseconds, int64) ascend within each group, no two
    of them alike.
    """

    def __init__(self, keys: pa.ChunkedArray, times: Ints) -> None:
        codes = codes_of(keys)
        self._known = KnownValues(keys.combine_chunks().unique())
        self._times = np.unique(times)
        self._codes = codes
        # Key and time as one sortable number; a time as its rank among the distinct times.
        self._order = codes * self._n_times + np.searchsorted(self._times, times, "right")

    @property
    def _n_times(self) -> int:
        return len(self._times) + 1

    def rows(self, keys: pa.ChunkedArray, times: Ints) -> Ints:
        """Return the row of each key as of a time; -1 where there is none."""
        codes = self._known.positions(keys.combine_chunks()).astype(np.int64)
        wanted = codes * self._n_times + np.searchsorted(self._times, times, "right")
        rows: Ints = np.searchsorted(self._order, wanted, "right") - 1
        is_found = (rows >= 0) & (codes >= 0)
        if len(self._codes):
            is_found &= self._codes[rows] == codes
        return np.where(is_found, rows, -1)
