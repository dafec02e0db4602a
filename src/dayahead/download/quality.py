"""Data quality: defects counted while converting, checked against the limits, and reported."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import EVENT_TIME, ROW, SESSION_START
from dayahead.core.errors import SourceError
from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.batches import EXAMPLES, QUOTE_ADVICE, UNREADABLE, RawBatch
from dayahead.download.events import EventBatch
from dayahead.download.file_quality import (
    DayCount,
    Defects,
    FileQuality,
    Place,
    add_days,
    place_of,
)
from dayahead.download.ids import odd_spellings, spelling_cure
from dayahead.download.reach import Reach
from dayahead.download.sources import Source

_TINY = 0.001
"""Shares below this are shown with more digits."""
_ADVICE = {
    "multiline": QUOTE_ADVICE,
    "undecodable": "If the files have another encoding, set source.encoding",
    "outside": "See time.between there; where all times are outside, see time.unit",
    "stray": "See time.between there",
}
"""What else to do about a check that exceeds its limit."""
_HEADINGS = ("check", "found", "of", "share", "limit", "verdict", "most in one file", "first")
UNDECODABLE = "undecodable"
"""Check of rows with a value that is not in the file's encoding; listed only if there are some."""
_log = logging.getLogger(__name__)


class QualityCounters:
    """Counts the defects of one source file, called `shown` in messages, as it is converted."""

    def __init__(self, shown: str, spelled: Sequence[str] = ()) -> None:
        self.n_rows = 0
        """Number of rows of the file so far."""
        self._spellings = dict.fromkeys(spelled, 0)
        self._defects: dict[str, Defects] = defaultdict(Defects)
        self._shown = shown
        self._days: dict[str, dict[int, DayCount]] = {EVENT_TIME: {}, SESSION_START: {}}
        self._places: list[Place] = []
        self._last_time: int | None = None

    def count_batch(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count the rows and the defects of a batch; batches come in the order of the file."""
        location = f"{raw.name}, {raw.unit} ".removeprefix(self._shown)
        self._add_place(raw.first, location)
        self._count_rows(raw, batch)
        for name in batch.readable.schema.names:
            if name != ROW:
                self._count(f"nulls.{name}", batch.readable, batch.readable[name].is_null())
        for column in batch.table.schema:
            if pa.types.is_floating(column.type):
                is_negative = pc.fill_null(pc.less(batch.table[column.name], 0), fill_value=False)
                self._count(f"negative.{column.name}", batch.table, is_negative)
        self._count_times(batch)
        for column, days in self._days.items():
            if column in batch.table.schema.names:
                add_days(days, batch.table, column, self.location)
        for name in self._spellings:
            self._spellings[name] += len(odd_spellings(batch.table[name]))

    def _count_rows(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count rows that cannot be read, or only with escapes, or that span lines."""
        first_row = self.n_rows
        self.n_rows += raw.n_rows
        errors = (error.removeprefix(self._shown) for error in batch.errors)
        self._defects[UNREADABLE].add(batch.dropped.get(UNREADABLE, 0), raw.n_rows, errors)
        errors = (error.removeprefix(self._shown) for error in raw.undecodable_errors)
        self._defects[UNDECODABLE].add(len(raw.undecodable), raw.n_rows, errors)
        if raw.multiline is not None:
            rows = raw.multiline + first_row
            first = map(self.location, rows[:EXAMPLES].tolist())
            self._defects["multiline"].add(len(rows), raw.n_rows, first)

    def result(self) -> FileQuality:
        """Return all counts."""
        days, starts = self._days.values()
        return FileQuality(dict(self._defects), days, starts, self._places, self._spellings)

    def _add_place(self, number: int, text: str) -> None:
        """Note where the next rows are, unless that follows from what is known."""
        if self._places:
            first_row, first_number, known = self._places[-1]
            if (known, number - self.n_rows) == (text, first_number - first_row):
                return
        self._places.append((self.n_rows, number, text))

    def _count_times(self, batch: EventBatch) -> None:
        events, outside = batch.table, batch.outside
        if EVENT_TIME not in events.schema.names:
            return
        n_times = events.num_rows + outside.num_rows
        first = outside[ROW].slice(0, EXAMPLES).to_pylist()
        self._defects["outside"].add(outside.num_rows, n_times, map(self.location, first))
        for check, rows in batch.clock_rows.items():
            self._count(check, events, pc.is_in(events[ROW], value_set=rows))
        times = np.asarray(events[EVENT_TIME].cast(pa.int64()))
        if not len(times):
            return
        before = times[0] if self._last_time is None else self._last_time
        self._count("backwards", events, pa.array(np.diff(times, prepend=before) < 0))
        self._last_time = int(times[-1])

    def _count(self, check: str, table: pa.Table, mask: pa.Array) -> None:
        n_rows = pc.sum(mask).as_py() or 0
        rows = table[ROW].filter(mask).slice(0, EXAMPLES).to_pylist() if n_rows else []
        self._defects[check].add(n_rows, table.num_rows, map(self.location, rows))

    def location(self, row: int) -> str:
        """Return where a row is, by its number from 0, without the name of the file."""
        return place_of(self._places, row)


Files = Sequence[tuple[Source, FileQuality]]


def check_quality(
    files: Files,
    dataset: DatasetConfig,
    name: str,
    reach: Reach | None,
    others: Sequence[QualityResult] = (),
) -> tuple[QualityResult, ...]:
    """Add up the counts of all files of a log; compare them, and other results, with the limits.

    `reach` says which events are strays; None: there is no event.

    Raises:
        SourceError: see `check_limits`.
    """
    results = [*totals(files, dataset), *others]
    results.append(_empty_days(files, dataset.quality.empty_days, reach))
    if reach is not None:
        results.append(reach.strays)
    check_limits(results, dataset, name, "log")
    return tuple(results)


def totals(files: Files, dataset: DatasetConfig) -> list[QualityResult]:
    """Add up the counts of all files."""
    checks = dict.fromkeys(check for _, quality in files for check in quality.defects)
    results = [_total(check, files, dataset) for check in checks]
    return [each for each in results if each.found or each.check != UNDECODABLE]


def check_limits(
    results: Sequence[QualityResult], dataset: DatasetConfig, name: str, what: str
) -> None:
    """Log what was found in the log or table, `what`, and compare it with the limits.

    Raises:
        SourceError: names every check that exceeds its limit, and the location of its first defect.
    """
    for result in results:
        if result.found:
            _log.info("quality: %s", _summary(result))
    exceeded = [each for each in results if each.limit is not None and each.share > each.limit]
    if exceeded:
        limits = ", ".join(f"quality.{_key(result.check)}" for result in exceeded)
        found = "; ".join(f"{_summary(result)}, first {result.examples[0]}" for result in exceeded)
        advice = "".join(f". {_ADVICE[each.check]}" for each in exceeded if each.check in _ADVICE)
        names = [each.check.partition(".") for each in exceeded]
        cures = [spelling_cure(name, dataset) for kind, _, name in names if kind == "spellings"]
        cure = f" set {' and '.join(cures)}, or" if cures else ", if that is how the log is,"
        raise SourceError(
            f"datasets/{name}.yaml: too many defects in the {what}: {found}. Correct the files, or"
            f"{cure} raise {limits} there{advice}"
        )


def _key(check: str) -> str:
    """Return the key of a check's limit: one for the spellings of all columns."""
    return "spellings" if check.startswith("spellings.") else check


def _total(check: str, files: Files, dataset: DatasetConfig) -> QualityResult:
    found = [
        (source, quality.defects[check]) for source, quality in files if check in quality.defects
    ]
    examples = [f"{source.url}{where}" for source, defects in found for where in defects.examples]
    source, worst = max(found, key=lambda each: each[1].rows / max(each[1].of, 1))
    return QualityResult(
        check,
        sum(defects.rows for _, defects in found),
        sum(defects.of for _, defects in found),
        dataset.quality.limit(check, dataset.needed_columns()),
        tuple(examples[:EXAMPLES]),
        f"{_percent(worst.rows / worst.of)} {source.file}" if worst.rows else "",
    )


def _empty_days(files: Files, limit: float | None, reach: Reach | None) -> QualityResult:
    found = sorted({day for _, quality in files for day in quality.days})
    days = [day for day in found if reach is None or reach.first <= day <= reach.last]
    gaps = [(np.datetime64(before, "D"), after - before - 1) for before, after in pairwise(days)]
    span = days[-1] - days[0] + 1 if days else 0
    examples = [f"{n} after {before}" for before, n in gaps if n]
    n_empty = sum(n for _, n in gaps)
    return QualityResult("empty_days", n_empty, span, limit, tuple(examples[:EXAMPLES]))


def _summary(result: QualityResult) -> str:
    limit = "" if result.limit is None else f" (limit {_percent(result.limit)})"
    return f"{result.check}: {_percent(result.share)} of {result.of:,} {_unit(result)}{limit}"


def report(
    results: Sequence[QualityResult],
    name: str,
    n_files: int,
    items: Sequence[QualityResult] | None = None,
) -> str:
    """Return all results as aligned tables in Markdown; `items` are those of a table of items."""
    lines = [
        f"# Quality of the input: {name}",
        "",
        f"{n_files} file{'s' if n_files > 1 else ''}. Limits stand in datasets/{name}.yaml, "
        f"section quality; no limit: only reported.",
        "Duplicates are looked for over all files.",
        "",
        *_aligned(results),
        "",
    ]
    if items is not None:
        lines += ["## Items", "", *_aligned(items), ""]
    return "\n".join(lines)


def _aligned(results: Sequence[QualityResult]) -> list[str]:
    lines = [_HEADINGS, *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in lines]


def _cells(result: QualityResult) -> tuple[str, ...]:
    limit = "" if result.limit is None else _percent(result.limit)
    outcome = "none" if not result.found else "allowed" if limit else "reported"
    found, of = f"{result.found:,}", f"{result.of:,} {_unit(result)}"
    locations = "; ".join(result.examples).replace("|", "\\|")
    share = _percent(result.share)
    return (result.check, found, of, share, limit, outcome, result.worst, locations)


def _unit(result: QualityResult) -> str:
    return "days" if result.check == "empty_days" else "rows"


def _percent(share: float) -> str:
    return f"{share:.4%}" if 0 < share < _TINY else f"{share:.2%}"
