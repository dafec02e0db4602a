"""Rules for the tensors of a model's state; each model declares its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dayahead.core.columns import LATEST_TIME

Limits = tuple[float, float]
"""The lowest and the highest value."""
# float64 holds every integer up to 2^53.
COUNTS: Limits = (0, 2.0**53)
TIMES: Limits = (0, LATEST_TIME)


@dataclass(frozen=True)
class Rows:
    """Arrays of a state with the same, arbitrary number of rows; and limits of their values."""

    names: tuple[str, ...]
    limits: Mapping[str, Limits] = field(default_factory=dict)
    is_sorted: bool = False
    """Whether the first array is ascending."""
    offsets: str = ""
    """The array of the starts of groups of these rows, and of the end of the last one."""
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
