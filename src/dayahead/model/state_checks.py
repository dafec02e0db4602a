"""Checks of a state before a model takes it: its indices decide where memory is read and written.

Compiled loops index without bounds, so what a file says is compared with the arrays it refers to
here, for all models.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from dayahead.core.columns import LATEST_TIME, N_RESERVED
from dayahead.core.errors import ModelFileError
from dayahead.memory.items import NEVER
from dayahead.memory.training import MOMENTS
from dayahead.model.baselines import ENDS, PAIRS, POPULARITY, Baseline, Transitions
from dayahead.model.linear import LinearModel
from dayahead.model.memories import UNREAD_BY_SCORERS, MemoryRecommender
from dayahead.model.neighbours import NeighbourModel
from dayahead.model.next_item import NextItemModel

Limits = tuple[float, float]
COUNTS: Limits = (0, 2.0**53)
TIMES: Limits = (0, LATEST_TIME)
ROWS_OF_CATEGORIES: Limits = (0, 2.0**62)
"""They are no indices, but looked for."""
_INDICES = {torch.int32, torch.int64}
_MEMORIES, _HEAD, _MOMENTS = "memory.memories.", "memory.head.", "memory.moments."
_REPLAY = "memory.replay."


class Sized(Protocol):
    """A tensor, or what a file's header says of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""

    @property
    def dtype(self) -> torch.dtype:
        """Of each value."""


@dataclass(frozen=True)
class Rows:
    """Arrays of a state that have equally many rows, any number; and limits of their values."""

    names: tuple[str, ...]
    limits: Mapping[str, Limits] = field(default_factory=dict)
    is_sorted: bool = False
    """Whether the first of them ascends."""
    offsets: str = ""
    """Where groups of these rows begin, and where the last one ends."""
    groups: str = ""
    """The array with a row for each group; none of them is empty. Without it there may be empty
    groups, and their number does not vary."""


def check_shapes(
    model: NextItemModel | Baseline, state: Mapping[str, Sized], *, is_grown: bool = False
) -> None:
    """Check names, types and shapes of a state; of a new model that is not grown, without lengths.

    What only further fits need may be missing as a whole.

    Raises:
        ModelFileError: the state does not belong to a model of these settings.
    """
    wanted: dict[str, Tensor] = model.state_dict()
    rules = list(_rules(model))
    varying = {name for rule in rules for name in (*rule.names, rule.offsets * bool(rule.groups))}
    if not any(name.startswith(UNREAD_BY_SCORERS) for name in state):
        wanted = {n: each for n, each in wanted.items() if not n.startswith(UNREAD_BY_SCORERS)}
    for name, tensor in wanted.items():
        if name not in state:
            raise ModelFileError(f"{name} is missing")
        found = state[name]
        is_index = isinstance(model, LinearModel) and {found.dtype, tensor.dtype} <= _INDICES
        if found.dtype != tensor.dtype and not is_index:
            raise ModelFileError(f"{name}: expected {tensor.dtype}, found {found.dtype}")
        skipped = 1 if name in varying or not is_grown else 0
        expected, shape = list(tensor.shape), list(found.shape)
        if len(shape) != len(expected) or shape[skipped:] != expected[skipped:]:
            raise ModelFileError(f"{name}: expected the shape {expected}, found {shape}")
    _check_moments(state, wanted)


def _check_moments(state: Mapping[str, Sized], wanted: Mapping[str, Tensor]) -> None:
    for name, found in state.items():
        if name.startswith(_MOMENTS):
            parameter, _, moment = name.removeprefix(_MOMENTS).rpartition(".")
            of_head = wanted.get(_HEAD + parameter)
            shape = () if moment == MOMENTS[0] else None if of_head is None else of_head.shape
            if moment not in MOMENTS or shape != found.shape or found.dtype != torch.float32:
                raise ModelFileError(f"{name}: no moment of a weight of the head")


def check_values(model: NextItemModel | Baseline, state: Mapping[str, Tensor]) -> None:
    """Check the values of a state of such shapes: a model that has grown takes it next.

    Raises:
        ModelFileError: a number is not finite, or an index leads out of its array.
    """
    for name, tensor in state.items():
        if tensor.is_floating_point() and not _is_finite(tensor):
            raise ModelFileError(f"{name}: expected finite numbers, found NaN or infinity")
        if tensor.dtype == torch.bool:
            _check_limits(name, tensor.view(torch.uint8), (0, 1))
    for rule in _rules(model):
        if rule.names[0] in state:
            _check_rows(rule, state)
    for name, limits in _limits(model).items():
        _check_limits(name, state[name], limits)
    if isinstance(model, MemoryRecommender):
        _check_known(model, state[f"{_MEMORIES}sizes"].tolist())


def _check_known(model: MemoryRecommender, sizes: list[int]) -> None:
    """Compare the numbers of known values, below which an index is looked up, with the model's."""
    wanted = list(model.memory.memories.sizes.values())
    if sizes != wanted:
        raise ModelFileError(f"{_MEMORIES}sizes: expected {wanted}, found {sizes}")


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


def _rules(model: NextItemModel | Baseline) -> Iterator[Rows]:
    items: Limits = (0, model.n_items - 1)
    if isinstance(model, Transitions):
        before, after, counts = PAIRS
        yield Rows(PAIRS, {before: items, after: items, counts: COUNTS})
    elif isinstance(model, NeighbourModel):
        yield Rows(("times",), {"times": TIMES}, is_sorted=True)
        limits = {"items": items, "positions": (1, torch.iinfo(torch.int32).max)}
        yield Rows(("items", "positions"), limits, offsets="offsets", groups="times")
    elif isinstance(model, LinearModel):
        for name in ("gram", "cross"):
            indices, data = f"{name}.indices", f"{name}.data"
            limits = {indices: items, data: COUNTS}
            yield Rows((indices, data), limits, offsets=f"{name}.indptr")
    elif isinstance(model, MemoryRecommender):
        yield from _rules_of_memory(model)


def _rules_of_memory(model: MemoryRecommender) -> Iterator[Rows]:
    indices: Limits = (0, model.n_items + N_RESERVED - 1)
    tables = ["pairs", "categories.clicks", "categories.transitions"]
    for table in [*tables, *(["pasts"] if model.memory.memories.pasts is not None else [])]:
        rows, columns, values = (
            f"{_MEMORIES}{table}.{name}" for name in ("rows", "columns", "values")
        )
        of_rows = ROWS_OF_CATEGORIES if table.startswith("categories") else indices
        limits = {rows: of_rows, columns: indices, values: COUNTS}
        yield Rows((rows, columns, values), limits, is_sorted=True)
    items, offsets, times = (
        f"{_MEMORIES}sessions.{name}" for name in ("items", "offsets", "times")
    )
    yield Rows((times,), {times: TIMES})
    yield Rows((items,), {items: indices}, offsets=offsets, groups=times)
    names = ("targets", "features", "is_candidate", "is_own", "context")
    targets, *others = (f"{_REPLAY}{name}" for name in names)
    n_candidates = model.memory.settings.config.n_candidates
    yield Rows((targets, *others), {targets: (-1, n_candidates - 1)})


def _limits(model: NextItemModel | Baseline) -> dict[str, Limits]:
    """Limits of arrays whose shapes do not vary."""
    if isinstance(model, NextItemModel):
        return {}
    limits = {POPULARITY: COUNTS, ENDS: COUNTS}
    if isinstance(model, NeighbourModel):
        limits |= {"events": COUNTS, "n_sessions": COUNTS}
    elif isinstance(model, LinearModel):
        limits |= {"end": TIMES}
    elif isinstance(model, MemoryRecommender):
        limits |= {f"{_MEMORIES}{n}": (NEVER, LATEST_TIME) for n in ("items.first", "items.latest")}
        limits |= {f"{_MEMORIES}clock": TIMES, f"{_MEMORIES}items.counts": COUNTS}
        limits |= {"memory.n_fits": COUNTS, f"{_HEAD}n_standardised": COUNTS}
    return limits


def check_candidates(candidates: Tensor, popularity: Tensor, n_items: int) -> None:
    """Check the items that may be recommended, and their popularity.

    Raises:
        ModelFileError: they are no items of the model, or not as many.
    """
    is_list = candidates.dtype == torch.int32 and candidates.dim() == 1
    if not is_list or popularity.dtype != torch.int64 or popularity.shape != candidates.shape:
        raise ModelFileError("candidates and their popularity: expected lists of equal length")
    if not len(candidates) or not (candidates[1:] > candidates[:-1]).all():
        raise ModelFileError("candidates: expected some indices, ascending")
    _check_limits("candidates", candidates, (N_RESERVED, N_RESERVED + n_items - 1))
    _check_limits("popularity", popularity, COUNTS)
