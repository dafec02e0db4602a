"""A model on its way through the windows: out of the store as far as that reaches, then fitted."""

import logging
from collections.abc import Sequence

from dayahead.train.cached_windows import CachedWindows
from dayahead.train.checks import fitted_windows
from dayahead.train.run import Fit, Run
from dayahead.windows.folder import Window

_log = logging.getLogger(__name__)


class WindowSchedule:
    """Brings a run's model to one window after the other, with as few fits as the store allows.

    Args:
        run: of this process.
        windows: that are fitted and measured, in order.
        states: what is kept; only the main process has it.
    """

    def __init__(self, run: Run, windows: Sequence[Window], states: CachedWindows | None) -> None:
        self.run = run
        self.windows = windows
        self.states = states
        self.place = -1
        self.fit: Fit | None = None

    def at(self, place: int) -> Fit:
        """Stand after the fit at windows[place], which is no earlier than where it stands."""
        if place > self.place:
            self._restore(place)
        training = self.run.params.training
        begin = place if training.starts_afresh and place > self.place else self.place + 1
        for number in range(begin, place + 1):
            self.fit = self.run.fit(fitted_windows(self.windows[: number + 1], training))
            self.place = number
            state = self.run.state()
            if self.states is not None:
                self.states.keep_fit(number, self.fit, state)
        assert self.fit is not None
        return self.fit

    def _restore(self, place: int) -> None:
        """Stand where the newest fit that is kept does, if that is further on."""
        lowest = place if self.run.params.training.starts_afresh else self.place + 1
        found = self.states.newest(lowest, place) if self.states is not None else None
        stands = self.run.process.broadcast(None if found is None else found[:2])
        if stands is None:
            return
        self.place, self.fit = stands
        self.run.restore(self.fit.window, None if found is None else found[2])
        if self.run.process.is_main:
            _log.info("fit %s: out of the store", self.fit.window.name)
