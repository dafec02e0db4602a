"""Windows as guards of the data see them: sessions and item counts, without files."""

from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import numpy as np

from dayahead.core.columns import N_RESERVED
from dayahead.nightly.admission import admit
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
    minutes: np.ndarray | None = None
    """Clicks by part, [windows, parts]; None: the same in all."""
    known: np.ndarray = field(init=False)

    def __post_init__(self):
        seen = self.counts > 0
        first = np.where(seen.any(axis=0), seen.argmax(axis=0), len(seen))
        order = np.argsort(first, kind="stable")
        self.counts = np.pad(self.counts[:, order], [(0, 0), (N_RESERVED, 0)])
        self.known = np.searchsorted(first[order], np.arange(len(seen)), side="right")
        self.n = self.n or len(seen)
        span = timedelta(**{self.unit: self.length})
        self._span = span
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

    @property
    def ends(self):
        span = self._span // timedelta(microseconds=1)
        return {each.name: each.start_time + span for each in self.windows}

    def n_sessions(self, window, _role):
        return int(self.sessions[window.position])

    def clicks_by_part(self, window, _role, n_parts):
        return np.ones(n_parts) if self.minutes is None else self.minutes[window.position]

    def n_known(self, _column, window):
        return int(self.known[window.position])

    def item_counts(self, window, _role):
        return self.counts[window.position, : N_RESERVED + self.known[self.n - 1]]


def admissions(folder, config, first):
    """Admit a window a night, from one on; return what each of these nights decided."""
    refused, found = set(), []
    for number in range(first, len(folder.sessions)):
        folder.n = number + 1
        found.append(admit(folder, [folder.windows[-1]], refused, config))
        refused = refused - set(found[-1].readmitted) | set(found[-1].refused)
    return found


def refused_windows(folder, config, first):
    """Return the numbers of the windows that are refused, as `admissions` decides."""
    nights = enumerate(admissions(folder, config, first), first)
    return [number for number, night in nights if night.refused]
