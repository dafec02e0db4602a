"""Data drift: how much a new window's data differ from the windows before it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from math import inf
from statistics import median

from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.windows.folder import Window, WindowFolder

MIN_BEFORE = 3
"""Minimum number of windows before a new one for it to be compared with them."""
N_PEERS = 4
"""Number of windows of the same weekday (or hour) with which its sessions are compared."""


@dataclass(frozen=True)
class Change:
    """A share from 0 to 1 in a window, and the largest such share in the windows before it."""

    value: float
    usual: float

    @property
    def excess(self) -> float:
        """Position between `usual` and 1: 0 or less is usual, 1 is the largest possible change."""
        return (self.value - self.usual) / (1 - self.usual) if self.usual < 1 else 0.0


@dataclass(frozen=True)
class Ratio:
    """Sessions of a window per expected session, and how far this was from 1 in windows before."""

    value: float
    usual: float
    """The ratio, or its inverse, farthest from 1 among the windows before it; at least 1."""

    @property
    def excess(self) -> float:
        """How many times as far from 1 as usual, in either direction."""
        return _farther(self.value) / self.usual


@dataclass(frozen=True)
class Drift:
    """A window compared with those before it."""

    sessions: Ratio
    """Its sessions relative to the median window of the same weekday, or to those before it."""
    new_items: Change | None
    """Share of its events on items of no earlier window; None where no two earlier windows are as
    far apart in time as it is from the newest window that it is compared with."""


class Drifts:
    """Compares windows with those before them.

    Args:
        folder: folder of the windows.
        left_out: windows that others are not compared with, because their data were refused.
        most: maximum number of windows that one is compared with.
    """

    def __init__(self, folder: WindowFolder, left_out: Collection[str], most: int) -> None:
        self.folder = folder
        self.left_out = left_out
        self.most = most
        self._counts_of = cache(lambda window: folder.item_counts(window, "train"))

    def of(self, window: Window) -> Drift | None:
        """Compare a window with those before it; None where they are too few.

        At least one of those has to be comparable itself, because what is usual depends on the
        catalogue (news change faster than shoes). It is taken at the same distance in time: after a
        gap, data differ more.
        """
        before = self.before(window)
        usual = [each for each in before if len(self.before(each)) >= MIN_BEFORE]
        if len(before) < MIN_BEFORE or not usual:
            return None
        return Drift(
            sessions=Ratio(self._ratio(window), max(_farther(self._ratio(each)) for each in usual)),
            new_items=self._new_items(window, usual, self._distance(before[-1], window)),
        )

    def before(self, window: Window) -> list[Window]:
        """Return the windows that one is compared with, in order."""
        return self._accepted(window)[-self.most :]

    def _accepted(self, window: Window) -> list[Window]:
        earlier = self.folder.windows[: window.position]
        return [each for each in earlier if each.name not in self.left_out]

    def _ratio(self, window: Window) -> float:
        """Return its number of sessions per expected session.

        Expected is the median of the same weekday (of windows shorter than a day: and hour; before
        there are two weeks: the same hour). The median of the windows before counts instead where
        it is nearer, if these are whole weeks (or days), or if there are no two of the same.
        """
        before = self._accepted(window)
        groups = [before[-self.most :]]
        for cycle in self._cycles:
            same = self._same(before, window, cycle)
            groups[1:] = [same] if same else []
            if len(same) >= 2:  # noqa: PLR2004
                # These windows are no whole cycles, so their weekdays or hours are unbalanced.
                if self.most % cycle:
                    groups.pop(0)
                break
        expected = (median(self._sessions[each.name] for each in group) for group in groups)
        return min((self._sessions[window.name] / each for each in expected), key=_farther)

    def _same(self, before: Sequence[Window], window: Window, cycle: int) -> list[Window]:
        """Return the last N_PEERS of `before` that are whole cycles earlier than the window."""
        return [w for w in before if self._distance(w, window) % cycle == 0][-N_PEERS:]

    def _new_items(self, window: Window, usual: Sequence[Window], gap: int) -> Change | None:
        """Compare its share of events on new items with that of windows at the same distance."""
        shares = []
        for each in usual:
            known = [w for w in self.folder.windows if self._distance(w, each) >= gap]
            if known:
                shares.append(self._new_share(each, self.folder.n_known(ITEM_ID, known[-1])))
        newest = self.folder.windows[window.position - 1]
        share = self._new_share(window, self.folder.n_known(ITEM_ID, newest))
        return Change(share, max(shares)) if shares else None

    def _new_share(self, window: Window, n_known: int) -> float:
        counts = self._counts_of(window)
        return float(counts[N_RESERVED + n_known :].sum() / counts.sum())

    def _distance(self, earlier: Window, later: Window) -> int:
        """Return how many windows later one is, counting missing windows too."""
        return self._slots[later.name] - self._slots[earlier.name]

    @cached_property
    def _sessions(self) -> dict[str, int]:
        return {entry.window: entry.sessions for entry in self.folder.manifest.windows}

    @cached_property
    def _span(self) -> timedelta:
        manifest = self.folder.manifest
        return timedelta(**{f"{manifest.unit}s": manifest.length})

    @cached_property
    def _slots(self) -> dict[str, int]:
        """Number of each window in time; rounded, since days may have 23 or 25 hours."""
        starts = [datetime.fromisoformat(each.start) for each in self.folder.windows]
        return {
            each.name: round((start - starts[0]) / self._span)
            for each, start in zip(self.folder.windows, starts, strict=True)
        }

    @cached_property
    def _cycles(self) -> list[int]:
        """Number of windows in a week and in a day, where that is a whole number above 1."""
        cycles = [timedelta(days=days) for days in (7, 1)]
        return [n for cycle in cycles if not cycle % self._span and (n := cycle // self._span) > 1]


def _farther(ratio: float) -> float:
    """Return a ratio or its inverse, whichever is larger."""
    return max(ratio, 1 / ratio) if ratio else inf
