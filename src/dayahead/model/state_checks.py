"""Checks of a state before a model loads it: its indices decide where memory is read and written.

Compiled loops do not check bounds, so the indices in a file are compared here, for all models, with
the arrays they refer to.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ModelFileError
from dayahead.model.model import Model
from dayahead.model.state_rules import COUNTS, Limits, Rows
from dayahead.model.tensor_files import Layout

Sized = Tensor | Layout
_INTEGERS = {torch.int32, torch.int64}


def check_shapes(model: Model, state: Mapping[str, Sized], *, is_grown: bool = False) -> None:
    """Check names, dtypes and shapes of a state; lengths only if the model is grown.

    The tensors that only further fits need may be missing altogether.

    Raises:
        ModelFileError: the state does not belong to a model of these settings.
    """
    rules = list(model.row_rules())
    varying = {name for rule in rules for name in rule.varying}
    any_integers = {name for rule in rules if rule.has_any_integers for name in rule.all_names}
    for name, tensor in _wanted(model, state, is_grown=is_grown).items():
        if name not in state:
            raise ModelFileError(f"{name} is missing")
        found = state[name]
        is_same = found.dtype == tensor.dtype
        if not is_same and not (name in any_integers and {found.dtype, tensor.dtype} <= _INTEGERS):
            raise ModelFileError(f"{name}: expected {tensor.dtype}, found {found.dtype}")
        skipped = 1 if name in varying or not is_grown else 0
        expected, shape = list(tensor.shape), list(found.shape)
        if len(shape) != len(expected) or shape[skipped:] != expected[skipped:]:
            raise ModelFileError(f"{name}: expected the shape {expected}, found {shape}")


def _wanted(model: Model, state: Mapping[str, Sized], *, is_grown: bool) -> dict[str, Tensor]:
    """Return examples of the tensors that a state must have; a grown model has no others."""
    wanted: dict[str, Tensor] = model.state_dict()
    optional, of_fits = model.optional_tensors(), model.read_by_fits_alone
    unknown = sorted(state.keys() - wanted.keys() - optional.keys())
    if is_grown and unknown:
        raise ModelFileError(f"{', '.join(unknown)}: no part of a model of these settings")
    if not any(name.startswith(of_fits) for name in state):
        wanted = {name: each for name, each in wanted.items() if not name.startswith(of_fits)}
    return wanted | {name: each for name, each in optional.items() if name in state}


def check_values(model: Model, state: Mapping[str, Tensor]) -> None:
    """Check the values of a state that has passed `check_shapes`, before a grown model loads it.

    Raises:
        ModelFileError: a number is not finite, or an index is out of the bounds of its array.
    """
    for name, tensor in state.items():
        if tensor.is_floating_point() and not _is_finite(tensor):
            raise ModelFileError(f"{name}: expected finite numbers, found NaN or infinity")
        if tensor.dtype == torch.bool:
            # Files may hold any byte as a bool; others than 0 and 1 are undefined.
            _check_limits(name, tensor.view(torch.uint8), (0, 1))
    for rule in model.row_rules():
        if rule.names[0] in state:
            _check_rows(rule, state)
    for name, limits in model.limits().items():
        if name in state:
            _check_limits(name, state[name], limits)


def _check_rows(rule: Rows, state: Mapping[str, Tensor]) -> None:
    first = state[rule.names[0]]
    for name in rule.names:
        if len(state[name]) != len(first):
            raise ModelFileError(
                f"{name}: expected {len(first)} rows, as {rule.names[0]} has, found "
                f"{len(state[name])}"
            )
    for name, limits in rule.limits.items():
        _check_limits(name, state[name], limits)
    if rule.is_sorted and not (first[1:] >= first[:-1]).all():
        raise ModelFileError(f"{rule.names[0]}: expected ascending values")
    if rule.offsets:
        _check_offsets(rule, state[rule.offsets], len(first), state)


def _check_offsets(rule: Rows, offsets: Tensor, n_rows: int, state: Mapping[str, Tensor]) -> None:
    is_long = not rule.groups or len(offsets) == len(state[rule.groups]) + 1
    if not is_long or int(offsets[0]) != 0 or int(offsets[-1]) != n_rows:
        raise ModelFileError(
            f"{rule.offsets}: expected one for each group, from 0 to {n_rows}, the rows of "
            f"{rule.names[0]}, found {len(offsets)}: {offsets[:1].tolist()} to "
            f"{offsets[-1:].tolist()}"
        )
    before, after = offsets[:-1], offsets[1:]
    if not (after > before if rule.groups else after >= before).all():
        raise ModelFileError(f"{rule.offsets}: expected ascending offsets")


def _check_limits(name: str, tensor: Tensor, limits: Limits) -> None:
    if not tensor.numel():
        return
    lowest, highest = (each.item() for each in torch.aminmax(tensor))
    if lowest < limits[0] or highest > limits[1]:
        raise ModelFileError(
            f"{name}: expected values from {limits[0]} to {limits[1]}, found {lowest} to {highest}"
        )


def _is_finite(tensor: Tensor) -> bool:
    """Whether there is no NaN and no infinity, without an array of flags."""
    return not tensor.numel() or all(each.isfinite() for each in torch.aminmax(tensor))


def check_candidates(candidates: Tensor, popularity: Tensor, n_items: int) -> None:
    """Check the items that may be recommended, and their popularity.

    Raises:
        ModelFileError: they are no items of the model, or the lists differ in length.
    """
    is_list = candidates.dtype == torch.int32 and candidates.dim() == 1
    if not is_list or popularity.dtype != torch.int64 or popularity.shape != candidates.shape:
        raise ModelFileError("candidates and their popularity: expected lists of equal length")
    if not len(candidates) or not (candidates[1:] > candidates[:-1]).all():
        raise ModelFileError("candidates: expected some indices, ascending")
    _check_limits("candidates", candidates, (N_RESERVED, N_RESERVED + n_items - 1))
    _check_limits("popularity", popularity, COUNTS)
