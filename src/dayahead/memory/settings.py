"""Settings of a memory model."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """Which sessions are kept and compared."""

    n_latest: int = 600
    """Sessions that hold the last item, latest first; older ones of every item are forgotten."""
    n_earlier: int = 300
    """Sessions that hold an item before it."""
    n_best: int = 200
    """Sessions whose items count."""
    fade: float = 0.7
    """Weight of a shared item, in parts of that of the one after it in the prefix."""
    half_life: float = 2.0
    """Of a session, in windows."""
    reach: int = 10
    """Items of a prefix that are compared."""
    backward: float = 0.5
    """Worth of a neighbour's items before the shared one, in parts of those after it."""
    sharpness: float = 3.0
    """Power of similarity in the second channel."""
    max_sessions: int = 200_000
    """Sessions kept, the latest."""


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """Size and training of the head."""

    width: int = 64
    """Hidden units; 0 leaves the linear part alone."""
    learning_rate: float = 3e-3
    final_rate: float = 0.1
    """Part of the learning rate that the last step of a fit has."""
    weight_decay: float = 1e-4
    batch_size: int = 64
    epochs: int = 2
    first_epochs: int = 8
    """Epochs of the first window, half of which teaches the memories."""
    n_examples: int = 20_000
    """Sessions of a window that the head learns from, drawn by chance where there are more."""
    n_replayed: int = 2000
    """Examples of earlier windows, the latest, that are trained on again."""


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a memory model."""

    unit: int
    """Microseconds of a window: half-lives count in these."""
    columns: tuple[str, ...] = ()
    """Names of the categorical columns."""
    n_candidates: int = 150
    """Items that the head ranks after each prefix; the others follow by popularity."""
    rank_all: bool = False
    """Whether scores are the head's for every item ever seen; it is trained on candidates still."""
    with_network: bool = False
    """Whether a network's log-softmax is a feature."""
    seed: int = 0
    neighbours: NeighbourSettings = field(default_factory=NeighbourSettings)
    head: HeadSettings = field(default_factory=HeadSettings)
