"""Windows as guards of the data see them: sessions and item counts, without files."""

from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import numpy as np

from dayahead.core.columns import N_RESERVED
from dayahead.windows.folder import Window
from support.window_folders import START, day


@dataclass
class SimulatedFolder:
    """Stands for a `WindowFolder`; its windows are named as if they were days.

    Columns of `counts` are in order of first sight, as a catalogue is; only the first `n` days are
    there yet.
    """

    sessions: np.ndarray
    counts: np.ndarray
    n: int = 0
    unit: str = "days"
    length: int = 1
    known: np.ndarray = field(init=False)

    def __post_init__(self):
        seen = self.counts > 0
        first = np.where(seen.any(axis=0), seen.argmax(axis=0), len(seen))
        order = np.argsort(first, kind="stable")
        self.counts = np.pad(self.counts[:, order], [(0, 0), (N_RESERVED, 0)])
        self.known = np.searchsorted(first[order], np.arange(len(seen)), side="right")
        self.n = self.n or len(seen)
        span = timedelta(**{self.unit: self.length})
        self._windows = tuple(
            Window(day(number), number, (START + number * span).isoformat())
            for number in range(len(seen))
        )

    @property
    def windows(self):
        return self._windows[: self.n]

    @property
    def manifest(self):
        numbers = zip(self.windows, self.sessions, strict=False)
        entries = [SimpleNamespace(window=w.name, sessions=int(n)) for w, n in numbers]
        return SimpleNamespace(unit=self.unit[:-1], length=self.length, windows=entries)

    def n_known(self, _column, window):
        return int(self.known[window.position])

    def item_counts(self, window, _role):
        return self.counts[window.position, : N_RESERVED + self.known[self.n - 1]]
