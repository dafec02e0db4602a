"""Settings of a memory model, and those that follow from the data set."""

from dataclasses import dataclass
from typing import NamedTuple

from dayahead.config.memory import MemoryConfig
from dayahead.core.durations import microseconds_of


class HalfLife(NamedTuple):
    """A half-life of counts."""

    name: str
    """As in params.yaml: 4, or 15min."""
    windows: float


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a memory model."""

    config: MemoryConfig
    unit: int
    """Length of a window, in microseconds: the unit of half-lives."""
    columns: tuple[str, ...]
    """Names of the categorical columns."""
    attributes: tuple[str, ...] = ()
    """Those of the columns whose values belong to items."""
    vectors: tuple[str, ...] = ()
    """Names of the vectors of items that are compared."""
    with_network: bool = False
    """Whether a network's log-softmax is a feature."""
    with_past: bool = False
    """Whether features of the user's past are used."""
    tick: int = 0
    """Microseconds between two counts within a window; 0: clicks count at its end."""
    gap: int = 0
    """Microseconds without a click after which a session has ended; read where there is a tick."""
    min_length: int = 1
    """A session counts from this number of clicks on; read where there is a tick."""
    has_weights: bool = False
    """Whether clicks count differently by their type."""
    seed: int

    def half_lives(self, kind: str) -> tuple[HalfLife, ...]:
        """Return those of the setting `<kind>_half_lives`."""
        return tuple(
            HalfLife(value, microseconds_of(value) / self.unit)
            if isinstance(value, str)
            else HalfLife(f"{value:g}", value)
            for value in getattr(self.config, f"{kind}_half_lives")
        )
