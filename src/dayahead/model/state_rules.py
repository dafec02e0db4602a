"""What may stand in the tensors of a model's state: each model says it of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from dayahead.core.columns import LATEST_TIME

Limits = tuple[float, float]
"""The lowest and the highest value."""
COUNTS: Limits = (0, 2.0**53)
TIMES: Limits = (0, LATEST_TIME)


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
    has_any_integers: bool = False
    """Whether integers may have 32 or 64 bits."""

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the arrays whose length varies."""
        return (*self.names, self.offsets) if self.groups else self.names

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of the rows' arrays and of their offsets."""
        return (*self.names, self.offsets)
