"""Metrics of other packages: their values, checked."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dayahead.core.errors import ConfigError, described
from dayahead.core.plugins import load_plugin

Function = Callable[[NDArray[np.int64], int], object]
RTOL = 1e-9
"""Largest relative difference of a target's value between two calls."""


def packaged_values(name: str, ranks: NDArray[np.int64], cutoff: int) -> NDArray[np.float64]:
    """Return the metric of an entry point for each target, [t] float64.

    Args:
        name: of the entry point.
        ranks: [t] ranks of targets, 1 is best, 0 where the target was no candidate.
        cutoff: length of the list.

    Raises:
        ConfigError: it cannot be imported, it raises an error, or it does not return one finite
            number for each target, the same in each call and whichever other targets there are.
    """
    function = load_plugin("metric", name)
    if not len(ranks):
        return np.zeros(0)
    values = _called(name, function, ranks, cutoff)
    # Means over groups and windows call it with other subsets of the targets.
    halves = [half for half in np.array_split(ranks, 2) if len(half)]
    again = np.concatenate([_called(name, function, half, cutoff) for half in halves])
    differing = np.flatnonzero(~np.isclose(again, values, rtol=RTOL, atol=0))
    if len(differing):
        first = differing[0]
        raise _error(
            name,
            cutoff,
            f"the same value of a target in each call, whichever others are in it, found "
            f"{float(values[first])!r} and then {float(again[first])!r} for rank {ranks[first]}",
        )
    return values


def _called(
    name: str, function: Function, ranks: NDArray[np.int64], cutoff: int
) -> NDArray[np.float64]:
    try:
        with np.errstate(all="ignore"):  # what is not finite is an error below
            found = function(ranks.copy(), cutoff)
            values = np.asarray(found, np.float64)
    except Exception as error:  # noqa: BLE001  # whatever the other package's function raises
        what = f"a number for each target, found an error ({described(error)})"
        raise _error(name, cutoff, what) from None
    if values.shape != ranks.shape:
        expected = f"a number for each target, {list(ranks.shape)}"
        raise _error(name, cutoff, f"{expected}, found the shape {list(values.shape)}")
    is_finite = np.isfinite(values)
    if not is_finite.all():
        first = int(np.argmin(is_finite))
        found = f"found {values[first]} for rank {ranks[first]}"
        raise _error(name, cutoff, f"finite numbers, {found}")
    return values


def _error(name: str, cutoff: int, what: str) -> ConfigError:
    return ConfigError(
        f"evaluation.metrics: {name} at cutoff {cutoff}: expected {what}; correct the function in "
        f"its package, or leave {name} out"
    )
