"""Settings of a memory model, and those that follow from the data set."""

from dataclasses import dataclass

from dayahead.config.memory import MemoryConfig


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a memory model."""

    config: MemoryConfig
    unit: int
    """Length of a window, in microseconds: the unit of half-lives."""
    columns: tuple[str, ...]
    """Names of the categorical columns."""
    with_network: bool = False
    """Whether a network's log-softmax is a feature."""
    with_past: bool = False
    """Whether features of the user's past are used."""
    seed: int
