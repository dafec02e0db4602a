"""Which windows stand, and the account of every event: windows.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from dayahead.config.params import WindowConfig
from dayahead.core.columns import ROLES
from dayahead.core.errors import ConfigError, DataError
from dayahead.preprocess.calendar import Calendar, instant
from dayahead.preprocess.tally import STEPS, Tally
from dayahead.windows.metadata import WindowEntry, WindowsManifest, WindowState


@dataclass(frozen=True)
class Listing:
    """What the windows hold, from the first to the last in which a session starts."""

    window: WindowConfig
    calendar: Calendar
    tally: Tally
    log_end: datetime
    without_user: int
    """Events that no gap session could take, since they name no user."""
    fit_windows: int

    @property
    def standing(self) -> list[int]:
        """Positions of the windows kept, in order of time."""
        return [place for place in self._listed() if self._state(place)[0] == "kept"]

    def check(self) -> None:
        """Refuse a log from which nothing can be learned.

        Raises:
            DataError: no window stands, or those to fit on have no train session.
            ConfigError: fewer windows stand than are to be fitted on.
        """
        standing, fit_windows = self.standing, self.fit_windows
        if not standing:
            states = [self._state(place)[0] for place in self._listed()]
            raise DataError(
                f"data/windows: none of {len(states)} windows stands: {states.count('dropped')} "
                f"have fewer sessions than window.min_sessions ({self.window.min_sessions}; the "
                f"fullest has {self.tally['sessions'].max()}), {states.count('open')} are not over "
                f"when the log ends ({_iso(self.log_end)}); lower window.min_sessions, or get "
                f"more of the log"
            )
        if len(standing) < fit_windows:
            raise ConfigError(
                f"params.yaml: preprocess.fit_windows: {fit_windows} windows to fit on, but only "
                f"{len(standing)} stand; lower it, or window.min_sessions "
                f"({self.window.min_sessions})"
            )
        if not self.tally["train"][standing[:fit_windows]].any():
            names = ", ".join(self.calendar.names[place] for place in standing[:fit_windows])
            raise DataError(
                f"data/windows: no train session in {names}, to which the features would be "
                f"fitted; widen split.train in the data set's file or raise preprocess.fit_windows"
            )

    def manifest(self) -> WindowsManifest:
        """Content of windows.json; events_read is the sum of the other steps."""
        standing = self.standing
        kept = int(self.tally["events"][standing].sum())
        return WindowsManifest(
            unit=self.window.unit,
            log_end=_iso(self.log_end),
            sessions_read=self.tally.total("started"),
            sessions_kept=int(self.tally["sessions"][standing].sum()),
            steps={
                "events_read": self.tally.total("read") + self.without_user,
                "dropped_no_user": self.without_user,
                **{f"dropped_{step}": self.tally.total(step) for step in STEPS},
                "dropped_windows": self.tally.total("events") - kept,
                "events_kept": kept,
            },
            windows=[self._entry(place) for place in self._listed()],
        )

    def _listed(self) -> Sequence[int]:
        places = np.flatnonzero(self.tally["started"])
        return range(int(places[0]), int(places[-1]) + 1)

    def _state(self, place: int) -> tuple[WindowState, str | None]:
        n_sessions = int(self.tally["sessions"][place])
        closes = instant(int(self.calendar.closes[place]))
        if self.log_end < closes:
            return "open", f"the log ends at {_iso(self.log_end)}, the window at {_iso(closes)}"
        if n_sessions < (least := self.window.min_sessions):
            return "dropped", f"{n_sessions} sessions, window.min_sessions asks for {least}"
        return "kept", None

    def _entry(self, place: int) -> WindowEntry:
        state, why = self._state(place)
        begin, end = (int(edge) for edge in self.calendar.edges[place : place + 2])
        return WindowEntry(
            window=self.calendar.names[place],
            start=_iso(instant(begin)),
            end=_iso(instant(end)),
            sessions=int(self.tally["sessions"][place]),
            events=int(self.tally["events"][place]),
            state=state,
            why=why,
            roles={role: int(self.tally[role][place]) for role in ROLES},
            overrun_events=int(self.tally["beyond"][place]),
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
