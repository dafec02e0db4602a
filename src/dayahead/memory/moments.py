"""Mean and deviation of the columns of many rows, in double precision."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dayahead.memory.clicks import Flags, Floats
from dayahead.memory.compiled import compiled

Rows = tuple[NDArray[np.float32], Flags]
"""Values [N, K], and which of the rows count."""


def moments(parts: Sequence[Rows]) -> tuple[Floats, Floats]:
    """Return mean and deviation [K] of the rows that count, of which there is at least one.

    Rows are added one after the other, so that it does not matter where parts begin.
    """
    n_rows = sum(int(counts.sum()) for _, counts in parts)
    mean = _sums(parts, np.zeros(parts[0][0].shape[1]), is_square=False) / n_rows
    return mean, np.sqrt(_sums(parts, mean, is_square=True) / n_rows)


def _sums(parts: Iterable[Rows], center: Floats, *, is_square: bool) -> Floats:
    """Return the sums of the differences from a center, or of their squares."""
    sums = np.zeros(len(center))
    for values, counts in parts:
        _add(sums, values, counts, center, is_square)
    return sums


@compiled
def _add(
    sums: Floats, values: NDArray[np.float32], counts: Flags, center: Floats, is_square: bool
) -> None:
    for row in range(len(values)):
        if counts[row]:
            for k in range(len(sums)):
                difference = values[row, k] - center[k]
                sums[k] += difference * difference if is_square else difference
