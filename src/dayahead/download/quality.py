"""Data quality: defects counted while converting, checked against the limits, and reported."""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
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

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_START
from dayahead.core.errors import SourceError
from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.events import EventBatch
from dayahead.download.file_quality import DayCount, Defects, FileQuality, add_days, by_name
from dayahead.download.reach import Reach
from dayahead.download.readers import EXAMPLES, QUOTE_ADVICE, RawBatch
from dayahead.download.sources import Source

_TINY = 0.001
"""Shares below this are shown with more digits."""
_HEADINGS = ("check", "found", "of", "share", "limit", "verdict", "most in one file", "first")
_ADVICE = {
    "multiline": QUOTE_ADVICE,
    "outside": "See time.between there; where all times are outside, see time.unit",
    "stray": "See time.between there",
}
"""What to do besides, by check."""
_log = logging.getLogger(__name__)


class QualityCounters:
    """Counts the defects of one source file, called `shown` in messages, as it is converted."""

    def __init__(self, shown: str) -> None:
        self.n_rows = 0
        """Number of rows of the file so far."""
        self._defects: dict[str, Defects] = defaultdict(Defects)
        self._shown = shown
        self._days: dict[str, dict[int, DayCount]] = {EVENT_TIME: {}, SESSION_START: {}}
        self._batches: list[tuple[int, int, str]] = []
        """By batch: first row, from 0; that row's number in messages, and the text before it."""
        self._last_time: int | None = None

    def count_batch(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count the rows and the defects of a batch; batches come in the order of the file."""
        location = f"{raw.name}, {raw.unit} ".removeprefix(self._shown)
        self._batches.append((self.n_rows, raw.first, location))
        self.n_rows += raw.n_rows
        n_unreadable = raw.n_rows - batch.readable.num_rows
        errors = (error.removeprefix(self._shown) for error in batch.errors)
        self._defects["unreadable"].add(n_unreadable, raw.n_rows, errors)
        if raw.multiline is not None:
            rows = np.flatnonzero(raw.multiline) + self._batches[-1][0]
            first = map(self.location, rows[:EXAMPLES].tolist())
            self._defects["multiline"].add(len(rows), raw.n_rows, first)
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

    def count_duplicates(self, path: Path) -> None:
        """Count events of a finished events file that equal an earlier one except for the row."""
        n_events, rows = _duplicates(path)
        self._defects["duplicates"].add(len(rows), n_events, map(self.location, rows[:EXAMPLES]))

    def result(self) -> FileQuality:
        """Return all counts."""
        days, starts = map(by_name, self._days.values())
        return FileQuality(dict(self._defects), days, starts)

    def _count_times(self, batch: EventBatch) -> None:
        events, outside = batch.table, batch.outside
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


def check_quality(
    files: Files, dataset: DatasetConfig, name: str, reach: Reach | None
) -> tuple[QualityResult, ...]:
    """Add up the counts of all files and compare them with the limits.

    `reach` says which events are strays; None: there is no event.

    Raises:
        SourceError: names every check that exceeds its limit, and the location of its first defect.
    """
    checks = dict.fromkeys(check for _, quality in files for check in quality.defects)
    results = [_total(check, files, dataset) for check in checks]
    results.append(_empty_days(files, dataset.quality.empty_days, reach))
    if reach is not None:
        results.append(reach.strays)
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


def _empty_days(files: Files, limit: float | None, reach: Reach | None) -> QualityResult:
    found = sorted({date.fromisoformat(day) for _, quality in files for day in quality.days})
    days = [day for day in found if reach is None or reach.has(day)]
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
