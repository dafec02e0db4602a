"""From where to where a log reaches, and which of its events are strays.

A clock that is wrong writes events of other years. They must neither begin nor end the log, so
days far from the bulk that hold next to nothing are strays: preprocess sets them aside, until the
log has reached their days and the rule counts them in.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np

from dayahead.core.columns import DAY
from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.time import microseconds
from dayahead.download.batches import EXAMPLES
from dayahead.download.convert import Files

EMPTY_DAYS = 21
"""Days without an event that part strays from the log: no holiday of a shop is as long."""
FEW = 0.1
"""Share of a typical day's events that each group of strays, by itself, does not reach."""
_MOST = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reach:
    """The part of the time axis that is the log's."""

    first: int
    """First day, since 1970, UTC."""
    last: int
    """Last day; with time.complete_until at least that day."""
    last_event: int
    """Time of the last event that is no stray, microseconds since 1970, UTC."""
    strays: QualityResult

    @property
    def span(self) -> tuple[int, int] | None:
        """Begin and end of these days, microseconds since 1970; None if there are no strays."""
        return (self.first * DAY, (self.last + 1) * DAY) if self.strays.found else None


def typical_day(counts: Sequence[int]) -> int:
    """Return the number of events on the day of a typical event.

    Half of all events are on days with at least as many, so many days of a few strays do not lower
    it, as they would the median of days.
    """
    ordered = np.sort(counts)[::-1]
    half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
    return int(ordered[half])


def reach(days: Mapping[int, int], latest: int | None = None) -> tuple[int, int]:
    """Return first and last day of a log that are no strays.

    At least EMPTY_DAYS days without an event part a group of days from the next. From both ends,
    groups are strays as long as each has fewer events than FEW of a typical day's. Nothing depends
    on the order of files, and what is a stray today is none once the days before it have come.

    Args:
        days: number of events by day since 1970, not empty.
        latest: last plausible day; later ones are strays too, unless they hold most events: then
            the clock of this machine is wrong. None: any.
    """
    total = sum(days.values())
    if latest is not None:
        past = {day: n for day, n in days.items() if day <= latest}
        days = past if sum(past.values()) >= _MOST * total else days
    names = np.array(sorted(days))
    counts = np.array([days[day] for day in names])
    begins = np.flatnonzero(np.diff(names, prepend=names[0] - EMPTY_DAYS - 1) > EMPTY_DAYS)
    sizes = np.add.reduceat(counts, begins)
    kept = np.flatnonzero(sizes >= FEW * typical_day(counts.tolist()))
    last = np.append(begins[1:], len(names))[kept[-1]] - 1
    return int(names[begins[kept[0]]]), int(names[last])


def reach_of(files: Files, dataset: DatasetConfig, today: date) -> Reach | None:
    """Return how far the log in some files reaches; None if they have no event.

    `today` (UTC) plays a part only where events of files are later than tomorrow, and there is no
    time.between.
    """
    days = _counts(files)
    if not days:
        return None
    is_bounded = dataset.time.between is not None or dataset.source.synthetic is not None
    first, last = reach(days, None if is_bounded else microseconds(today) // DAY + 1)
    until, end = dataset.time.complete_until, last
    if isinstance(until, datetime):
        end = max(last, (microseconds(until) - 1) // DAY)
    strays = [day for day in sorted(days) if not first <= day <= end]
    last_event = max(
        (
            count.last
            for each in files
            for day, count in each.quality.days.items()
            if first <= day <= last
        ),
        default=first * DAY,
    )
    return Reach(first, end, last_event, _result(strays, days, files, dataset))


def _counts(files: Files) -> Mapping[int, int]:
    """Count events by day, and once more by the day of columns.session_start, if it is set."""
    total: Counter[int] = Counter()
    for each in files:
        for days in (each.quality.days, each.quality.starts):
            total.update({day: count.events for day, count in days.items()})
    return total


def _result(
    strays: Sequence[int],
    days: Mapping[int, int],
    files: Files,
    dataset: DatasetConfig,
) -> QualityResult:
    examples = []
    for day in strays[:EXAMPLES]:
        counts = [
            (count, each.source)
            for each in files
            for count in (each.quality.days.get(day), each.quality.starts.get(day))
            if count
        ]
        count, source = counts[0]
        n = sum(each.events for each, _ in counts)
        noun = "event" if n == 1 else "events"
        name = np.datetime64(day, "D")
        examples.append(f"{n:,} {noun} on {name} ({source.url}{count.first_row})")
    found, of = sum(days[day] for day in strays), sum(days.values())
    return QualityResult("stray", found, of, dataset.quality.stray, tuple(examples))


def warn_of_strays(reach: Reach, name: str) -> None:
    """Say at the terminal which events do not count, and what to do."""
    if reach.strays.found:
        first, last = (np.datetime64(day, "D") for day in (reach.first, reach.last))
        _log.warning(
            "download: the log reaches from %s to %s; set aside until it reaches them: %s. If "
            "these times are wrong, drop them by time.between in datasets/%s.yaml",
            *(first, last, "; ".join(reach.strays.examples), name),
        )
