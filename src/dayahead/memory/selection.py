"""Selection: the k-th lowest of values that are not sorted."""

import numpy as np

from dayahead.memory.compiled import compiled
from dayahead.memory.table import Floats32


@compiled
def kth_lowest(values: Floats32, k: int) -> np.float32:
    """Return the value at position k of the sorted values; reorders them (Hoare 1961).

    numpy.partition does the same, but Numba takes five seconds to compile it.
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return np.float32(values[k])
