"""Data quality: defects counted while converting, checked against the limits, and reported."""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import DAY, EVENT_TIME, ITEM_ID, ROW
from dayahead.core.errors import SourceError
from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.batches import EXAMPLES, QUOTE_ADVICE, UNREADABLE, RawBatch
from dayahead.download.events import EventBatch
from dayahead.download.sources import Source

_TINY = 0.001
"""Shares below this are shown with more digits."""
_ADVICE = {
    "multiline": QUOTE_ADVICE,
    "undecodable": "If the files have another encoding, set source.encoding",
}
"""What else to do about a check that exceeds its limit."""
_HEADINGS = ("check", "found", "of", "share", "limit", "verdict", "most in one file", "first")
UNDECODABLE = "undecodable"
"""Check of rows with a value that is not in the file's encoding; listed only if there are some."""
_log = logging.getLogger(__name__)


@dataclass
class Defects:
    """Rows of one source file that fail a check."""

    rows: int = 0
    of: int = 0
    """Number of rows that were checked."""
    examples: list[str] = field(default_factory=list)
    """Locations of the first ones, without the name of the file."""

    def add(self, rows: int, of: int, locations: Iterable[str]) -> None:
        """Count more rows."""
        self.rows += rows
        self.of += of
        self.examples += list(locations)[: EXAMPLES - len(self.examples)]


@dataclass(frozen=True)
class FileQuality:
    """Counts of one source file."""

    defects: dict[str, Defects]
    """Defects by check, as in section `quality` of the data set's file, without empty_days."""
    days: list[str]
    """Days (UTC) with an event, ISO 8601, in order."""


class QualityCounters:
    """Counts the defects of one source file, called `shown` in messages, as it is converted."""

    def __init__(self, shown: str) -> None:
        self.n_rows = 0
        """Number of rows of the file so far."""
        self._defects: dict[str, Defects] = defaultdict(Defects)
        self._shown = shown
        self._days: set[int] = set()
        self._batches: list[tuple[int, int, str]] = []
        """By batch: first row, from 0; that row's number in messages, and the text before it."""
        self._last_time: int | None = None

    def count_batch(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count the rows and the defects of a batch; batches come in the order of the file."""
        location = f"{raw.name}, {raw.unit} ".removeprefix(self._shown)
        self._batches.append((self.n_rows, raw.first, location))
        self.n_rows += raw.n_rows
        errors = (error.removeprefix(self._shown) for error in batch.errors)
        self._defects[UNREADABLE].add(batch.dropped.get(UNREADABLE, 0), raw.n_rows, errors)
        errors = (error.removeprefix(self._shown) for error in raw.undecodable_errors)
        self._defects[UNDECODABLE].add(len(raw.undecodable), raw.n_rows, errors)
        if raw.multiline is not None:
            rows = raw.multiline + self._batches[-1][0]
            first = map(self._location, rows[:EXAMPLES].tolist())
            self._defects["multiline"].add(len(rows), raw.n_rows, first)
        for name in batch.readable.schema.names:
            if name != ROW:
                self._count(f"nulls.{name}", batch.readable, batch.readable[name].is_null())
        for column in batch.table.schema:
            if pa.types.is_floating(column.type):
                is_negative = pc.fill_null(pc.less(batch.table[column.name], 0), fill_value=False)
                self._count(f"negative.{column.name}", batch.table, is_negative)
        self._count_times(batch.table)

    def count_duplicates(self, path: Path) -> None:
        """Count events of a finished events file that equal an earlier one except for the row."""
        n_events, rows = _duplicates(path)
        self._defects["duplicates"].add(len(rows), n_events, map(self._location, rows[:EXAMPLES]))

    def result(self) -> FileQuality:
        """Return all counts."""
        days = [str(np.datetime64(day, "D")) for day in sorted(self._days)]
        return FileQuality(dict(self._defects), days)

    def _count_times(self, events: pa.Table) -> None:
        times = np.asarray(events[EVENT_TIME].cast(pa.int64()))
        if not len(times):
            return
        before = times[0] if self._last_time is None else self._last_time
        self._count("backwards", events, pa.array(np.diff(times, prepend=before) < 0))
        self._last_time = int(times[-1])
        self._days.update(np.unique(times // DAY).tolist())

    def _count(self, check: str, table: pa.Table, mask: pa.Array) -> None:
        n_rows = pc.sum(mask).as_py() or 0
        rows = table[ROW].filter(mask).slice(0, EXAMPLES).to_pylist() if n_rows else []
        self._defects[check].add(n_rows, table.num_rows, map(self._location, rows))

    def _location(self, row: int) -> str:
        index = bisect_right(self._batches, row, key=itemgetter(0)) - 1
        first_row, number, location = self._batches[index]
        return f"{location}{number + row - first_row:,}"


def _duplicates(path: Path) -> tuple[int, list[int]]:
    """Return the number of events and the rows, in order, of those that repeat an earlier one.

    Only events that share item and time with another are compared in all columns.
    """
    keys = pq.read_table(path, columns=[ITEM_ID, EVENT_TIME])
    keys = keys.to_pandas(strings_to_categorical=True)
    # Equal hashes only preselect; a collision costs time, as all columns are compared below.
    is_shared = pd.util.hash_pandas_object(keys, index=False).duplicated(keep=False).to_numpy()
    if not is_shared.any():
        return len(keys), []
    events = pa.concat_tables(_filtered(path, is_shared))
    columns = [name for name in events.schema.names if name != ROW]
    groups = events.group_by(columns, use_threads=False).aggregate([(ROW, "min")])
    is_first = pc.is_in(events[ROW], value_set=groups[f"{ROW}_min"])
    return len(keys), events.filter(pc.invert(is_first))[ROW].to_pylist()


def _filtered(path: Path, mask: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    file = pq.ParquetFile(path)
    start = 0
    for index in range(file.num_row_groups):
        group = file.read_row_group(index)
        yield group.filter(pa.array(mask[start : start + group.num_rows]))
        start += group.num_rows


Files = Sequence[tuple[Source, FileQuality]]


def check_quality(files: Files, dataset: DatasetConfig, name: str) -> tuple[QualityResult, ...]:
    """Add up the counts of all files and compare them with the limits.

    Raises:
        SourceError: names every check that exceeds its limit, and the location of its first defect.
    """
    checks = dict.fromkeys(check for _, quality in files for check in quality.defects)
    results = [_total(check, files, dataset) for check in checks]
    results = [each for each in results if each.found or each.check != UNDECODABLE]
    results.append(_empty_days(files, dataset.quality.empty_days))
    for result in results:
        if result.found:
            _log.info("quality: %s", _summary(result))
    exceeded = [each for each in results if each.limit is not None and each.share > each.limit]
    if exceeded:
        limits = ", ".join(f"quality.{result.check}" for result in exceeded)
        found = "; ".join(f"{_summary(result)}, first {result.examples[0]}" for result in exceeded)
        advice = "".join(f". {_ADVICE[each.check]}" for each in exceeded if each.check in _ADVICE)
        raise SourceError(
            f"datasets/{name}.yaml: too many defects in the log: {found}. Correct the files, or, "
            f"if that is how the log is, raise {limits} there{advice}"
        )
    return tuple(results)


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


def _empty_days(files: Files, limit: float | None) -> QualityResult:
    days = sorted({date.fromisoformat(day) for _, quality in files for day in quality.days})
    gaps = [(before, (after - before).days - 1) for before, after in pairwise(days)]
    span = (days[-1] - days[0]).days + 1 if days else 0
    examples = [f"{n} after {before}" for before, n in gaps if n]
    n_empty = sum(n for _, n in gaps)
    return QualityResult("empty_days", n_empty, span, limit, tuple(examples[:EXAMPLES]))


def _summary(result: QualityResult) -> str:
    limit = "" if result.limit is None else f" (limit {_percent(result.limit)})"
    return f"{result.check}: {_percent(result.share)} of {result.of:,} {_unit(result)}{limit}"


def report(results: Sequence[QualityResult], name: str, n_files: int) -> str:
    """Return all results as an aligned table in Markdown."""
    lines = [_HEADINGS, *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    table = ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in lines]
    return "\n".join(
        [
            f"# Quality of the input: {name}",
            "",
            f"{n_files} file{'s' if n_files > 1 else ''}. Limits stand in datasets/{name}.yaml, "
            f"section quality; no limit: only reported.",
            "Duplicates are looked for among the events of one part of data/raw.",
            "",
            *table,
            "",
        ]
    )


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
