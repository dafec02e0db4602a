"""Compile loops to machine code."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers by Numba at its first call; later runs reuse it.

    Numba notices changes of the function's own file only. So pass what other modules define as
    arguments, call no compiled function of another module, and delete __pycache__/*.nb? after
    renaming a NamedTuple that one takes. Sums keep their order (no fast math), so results are the
    same on every run.
    """
    try:
        return cast(Function, numba.njit(cache=True, error_model="numpy")(function))
    except RuntimeError:  # there is no folder to keep it in: each process compiles
        return cast(Function, numba.njit(error_model="numpy")(function))
