"""Selection: the k-th lowest, and the k highest, of values that are not sorted."""

import numpy as np

from dayahead.memory.clicks import Floats32, Ints
from dayahead.memory.compiled import compiled


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


@compiled
def highest(values: Floats32, k: int) -> Ints:
    """Return the positions of the k highest values, best first, of equal ones the first ones."""
    chosen = np.arange(len(values))
    if len(values) > k:
        lowest = kth_lowest(values.copy(), len(values) - k)
        n_ties = k - np.sum(values > lowest)
        end = 0
        for i in range(len(values)):
            is_tie = values[i] == lowest and n_ties > 0
            if is_tie or values[i] > lowest:
                chosen[end] = i
                end += 1
                n_ties -= is_tie
        chosen = chosen[:end]
    # Stable: equal values keep their order. Numba calls its only stable sort "mergesort".
    return chosen[np.argsort(-values[chosen], kind="mergesort")]
