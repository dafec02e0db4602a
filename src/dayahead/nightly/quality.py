"""Whether quality rose or fell: the metric of a night beside those of the windows before."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from dayahead.config.metric_names import title_of
from dayahead.nightly.history import Entry, State

CHAMPION = "champion"
MOST = 10
"""A larger relative change says nothing: the value before is nearly 0."""


@dataclass(frozen=True)
class Quality:
    """The metric of a window, and what it is compared with."""

    metric: str
    """NDCG@20"""
    window: str
    value: float
    before: tuple[str, float] | None
    """The window before and its value; None for the first."""
    usual: float
    """Median of the windows before; not read without one."""
    n_usual: int
    baseline: tuple[str, float] | None
    """The best counting baseline in the window."""

    @property
    def change(self) -> str:
        """Say how the value differs from those before, empty for the first window."""
        if self.before is None:
            return ""
        window, value = self.before
        found = f"{_change(self.value, value, 'up', 'down')} from {window}"
        if self.n_usual == 1:
            return found
        return (
            f"{found} and {_change(self.value, self.usual, 'above', 'below')} the median of the "
            f"{self.n_usual} windows before"
        )

    def __str__(self) -> str:
        """Return the sentence of the terminal."""
        beside = (
            f"; best counting baseline: {self.baseline[0]}, {self.baseline[1]:.4f}"
            if self.baseline
            else ""
        )
        change = f": {self.change}" if self.change else ", the first window"
        return f"{self.metric} {self.value:.4f} in {self.window}{change}{beside}"

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the same for programs: `before` is the window before, `usual` the median."""
        window, value = self.before or (None, None)
        return {
            "metric": self.metric,
            "window": self.window,
            "value": self.value,
            "before": {"window": window, "value": value} if self.before else None,
            "usual": {"windows": self.n_usual, "median": self.usual} if self.n_usual else None,
        }


def _change(value: float, other: float, more: str, less: str) -> str:
    by = f"{abs(value - other):.4f}"
    if other and (share := abs(value / other - 1)) < MOST:
        by = f"{share:.1%}"
    return f"{by} {more if value >= other else less}"


def quality_of(state: State, entry: Entry, metric: str, n_windows: int) -> Quality | None:
    """Compare the metric of an entry with that of up to `n_windows` windows before it.

    None where the entry has no metric, as that of a refused night. `metric` is that of entries that
    do not say which they have.
    """
    if CHAMPION not in entry.metrics:
        return None
    metric = entry.details.get("metric", metric)
    known = state.values(metric)
    before = [(w, known[w][CHAMPION]) for w in sorted(known) if w < entry.window][-n_windows:]
    others = {name: v for name, v in entry.metrics.items() if name != CHAMPION}
    best = max(others, key=lambda name: others[name], default=None)
    return Quality(
        metric=title_of(metric),
        window=entry.window,
        value=entry.metrics[CHAMPION],
        before=before[-1] if before else None,
        usual=median(value for _, value in before) if before else 0.0,
        n_usual=len(before),
        baseline=None if best is None else (best, others[best]),
    )


def quality_of_published(state: State, metric: str, n_windows: int) -> Quality | None:
    """Compare the metric of the newest night that published with those before it, as above."""
    published = next((e for e in reversed(state.decisions) if e.kind == "published"), None)
    return quality_of(state, published, metric, n_windows) if published else None
