"""What became of events and sessions, counted by window."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dayahead.core.columns import ROLES
from dayahead.features.arrays import Ints

STEPS = ("repeats", "overrun", "short_sessions", "truncated", "no_role")
"""What may drop an event, in this order."""
NAMES = (
    "read",  # events
    *STEPS,  # events dropped
    "events",  # that passed every step
    "beyond",  # events at or after the close of their window, kept or not
    "late",  # events of windows that were written before they came
    "started",  # sessions read
    "sessions",  # that passed every step
    *ROLES,  # sessions
)


@dataclass(frozen=True)
class Tally:
    """Counts by name (NAMES) and window, to be summed over parts of a log."""

    counts: Mapping[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        """Give one count, by window."""
        return self.counts[name]

    @property
    def n_windows(self) -> int:
        """Windows counted."""
        return len(self.counts["read"])

    def total(self, name: str) -> int:
        """Sum one count over the windows."""
        return int(self.counts[name].sum())

    def before(self, n_windows: int) -> "Tally":
        """Take the first windows alone."""
        return Tally({name: count[:n_windows] for name, count in self.counts.items()})

    @classmethod
    def over(cls, tallies: list["Tally"]) -> "Tally":
        """Sum tallies that begin with the same window, however many follow."""
        n_windows = max(tally.n_windows for tally in tallies)

        def padded(count: Ints) -> Ints:
            return np.pad(count, (0, n_windows - len(count)))

        return cls(
            {name: reduce(np.add, [padded(tally[name]) for tally in tallies]) for name in NAMES}
        )

    def as_json(self) -> dict[str, list[int]]:
        """Plain lists."""
        return {name: count.tolist() for name, count in self.counts.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, list[int]]) -> "Tally":
        """Read what `as_json` gave."""
        return cls({name: np.array(value[name], dtype=np.int64) for name in NAMES})
