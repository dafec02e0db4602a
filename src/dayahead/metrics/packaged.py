"""Metrics of other packages: their values, checked."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dayahead.core.errors import ConfigError, described
from dayahead.core.plugins import load_plugin
from dayahead.metrics.lists import Shown

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
    # Means over segments and windows call it with other subsets of the targets.
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


def packaged_figure(name: str, shown: Shown, k: int, n_items: int) -> float:
    """Return the metric of lists of an entry point, of the first k items of each list.

    It is called with `items` (catalogue indices, [N]), `counts` (number of lists that show each,
    [N], above 0) and `n_items` (that a list could show).

    Raises:
        ConfigError: it cannot be imported, it raises an error, or it does not return one finite
            number, the same in each call.
    """
    function = load_plugin("list metric", name)
    counts = shown.up_to(k)
    is_shown = counts > 0
    items, counts = shown.items[is_shown].astype(np.int64), counts[is_shown]
    found: list[float] = []
    for _ in range(2):
        try:
            with np.errstate(all="ignore"):
                found.append(float(function(items.copy(), counts.copy(), n_items)))
        except Exception as error:  # noqa: BLE001  # whatever the other package's function raises
            what = f"a number, found an error ({described(error)})"
            raise _error(name, k, what, "evaluation.list_metrics") from None
    if not math.isfinite(found[0]) or not math.isclose(found[0], found[1], rel_tol=RTOL):
        what = f"one finite number, the same in each call, found {found[0]} and then {found[1]}"
        raise _error(name, k, what, "evaluation.list_metrics")
    return found[0]


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


def _error(name: str, cutoff: int, what: str, setting: str = "evaluation.metrics") -> ConfigError:
    return ConfigError(
        f"{setting}: {name} at cutoff {cutoff}: expected {what}; correct the function in "
        f"its package, or leave {name} out"
    )
