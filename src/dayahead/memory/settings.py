"""Settings of a memory model, and what its log decides."""

from dataclasses import dataclass

from dayahead.config.memory import MemoryConfig


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a memory model."""

    config: MemoryConfig
    unit: int
    """Microseconds of a window: half-lives count in these."""
    columns: tuple[str, ...]
    """Names of the categorical columns."""
    with_network: bool = False
    """Whether a network's log-softmax is a feature."""
    with_past: bool = False
    """Whether the user's past is evidence."""
    seed: int
