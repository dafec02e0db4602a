"""Files of an unknown log to findings and the text of a data set file."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dayahead.core.errors import SourceError
from dayahead.dataset.time import TimeConfig
from dayahead.inspection.dataset_file import DatasetFile
from dayahead.inspection.features import Features, find_features
from dayahead.inspection.finding import Finding
from dayahead.inspection.items import find_items
from dayahead.inspection.keys import Keys, find_keys, item_type
from dayahead.inspection.sample import Sample, local_files, take_sample
from dayahead.inspection.sessions import Windows, repeated, suggest
from dayahead.inspection.table import Table, read_table
from dayahead.inspection.times import find_time

_GLOB_FROM = 4
"""Number of files from which on a glob names them, if it finds the same."""


@dataclass(frozen=True)
class Inspection:
    """What was found in a log."""

    read: str
    """How much was read."""
    findings: list[Finding]
    columns: list[tuple[str, str, str, str]]
    """Name, type, empty and different values of each column."""
    windows: Windows
    options: list[str]
    """Of `dvc exp run`, for these windows."""
    text: str
    """The data set file."""


def inspect_log(given: Sequence[str], name: str, items: Sequence[str] = ()) -> Inspection:
    """Read a sample of the first and the last file, and of those of a table of items.

    Raises:
        SourceError: no file matches, one is damaged, or this is no log.
        ConfigError: a file is not on this machine.
    """
    paths = local_files(given)
    samples = _samples(paths)
    table = read_table(samples, str(paths[0]))
    reading, time_columns, times_found = find_time(table)
    keys = find_keys(table, reading.times, time_columns)
    features = find_features(table, keys, time_columns)
    windows = suggest(table, keys, reading.times, len(paths))
    counts = repeated(table, keys, reading.times)
    again = _repeats({**counts, "retried": 0} if reading.is_date else counts, table, keys)
    findings = [*_files(samples), *table.findings, *times_found, *keys.findings, *again]
    findings += features.findings
    section: list[str] = []
    if items:
        of_items, section = _items(items, table, keys, reading.config, features)
        findings += of_items
    options = windows.options(reading.config.zone)
    read = _read(samples, table, len(paths))
    command = " ".join([f"dvc exp run -q -S dataset={name}", *options])
    head = [
        "Written by `dayahead inspect` from a sample; each guess has its confidence and reason.",
        f"Read: {read}.",
        f"About {windows.sessions:,} sessions of two clicks or more in {windows.shown}:",
        command,
    ]
    file = DatasetFile(table, reading, keys, features, findings)
    text = file.text(_urls(given, paths), head, section)
    return Inspection(read, findings, list(_columns(table)), windows, options, text)


def _items(
    given: Sequence[str], log: Table, keys: Keys, time: TimeConfig, taken: Features
) -> tuple[list[Finding], list[str]]:
    """Return the findings about a table of items, and the section `items`."""
    paths = local_files(given)
    samples = _samples(paths)
    table = read_table(samples, str(paths[0]))
    found = find_items(table, log, keys, time, taken)
    of_source = [*_files(samples), *table.findings, *found.features.findings]
    kind = item_type(log.columns[keys.item])
    lines = found.lines(_urls(given, paths), of_source, kind)
    named = [replace(each, key=f"items.{each.key}") for each in of_source]
    return [*named, *found.findings], [*lines]


def _samples(paths: list[Path]) -> list[Sample]:
    """Return the first and the last file that are not empty."""
    first = next((found for path in paths if (found := take_sample(path))), None)
    if first is None:
        raise SourceError(f"{', '.join(map(str, paths))[:300]}: no file holds anything")
    others = (take_sample(path) for path in reversed(paths) if path != first.path)
    last = next((found for found in others if found), None)
    if last is not None and last.format != first.format:
        raise SourceError(
            f"{last.name}: expected {first.format} as {first.name}, found {last.format}. Inspect "
            f"files of one kind"
        )
    return [first, *([last] if last else [])]


def _files(samples: list[Sample]) -> Iterator[Finding]:
    sample = samples[0]
    yield Finding("source.format", sample.format, "certain", "by its content")
    if sample.packing not in ("", "parquet"):
        yield Finding("compression", sample.packing, "certain", "by its first bytes")
    if sample.format != "parquet":
        yield sample.encoding


def _read(samples: list[Sample], table: Table, n_files: int) -> str:
    parts = []
    for sample in samples:
        is_part = sample.times_longer > 1.5  # noqa: PLR2004
        size = f"{len(sample.text) / 1e6:.1f} MB" if sample.text else "the first rows"
        parts.append(f"{size} of {sample.name}" + f" (about 1/{sample.times_longer:.0f})" * is_part)
    files = f", of {n_files} files" if n_files > len(samples) else ""
    return f"{table.n_rows:,} rows, {' and '.join(parts)}{files}"


def _columns(table: Table) -> Iterator[tuple[str, str, str, str]]:
    for name, column in table.columns.items():
        yield name, column.kind, f"{column.nulls:.1%}", f"{len(column.distinct):,}"


def _repeats(counts: dict[str, int], table: Table, keys: Keys) -> Iterator[Finding]:
    n = table.n_rows
    why = f"{counts['equal']:,} of {n:,} rows equal an earlier one"
    yield Finding("sessions.duplicates", "keep", "certain", f"{why}; drop where sent twice")
    if counts["retried"]:
        why = f"{counts['retried']:,} events repeat one of the same session within 2 seconds"
        yield Finding("sessions.retry_seconds", "none", "certain", why)
    why = f"{counts['consecutive']:,} events have the item of the event before"
    types = ", some of another type" if keys.event_type else ""
    reason = f"{why}{types}; drop_consecutive drops them"
    yield Finding("sessions.repeats", "keep", "likely", reason)


def _urls(given: Sequence[str], paths: list[Path]) -> list[str]:
    """Return absolute paths: globs as they are given, or one for all files of a folder."""
    given = [each.removeprefix("file://") for each in given]
    if not any(Path(each).is_file() for each in given):
        return [_absolute(Path(each)) for each in dict.fromkeys(given)]
    folder, suffix = paths[0].parent, "".join(paths[0].suffixes[-2:])
    same = sorted(folder.glob(f"*{suffix}"))
    is_plain = glob.escape(str(folder)) == str(folder)
    if len(paths) >= _GLOB_FROM and is_plain and same == sorted(paths):
        return [_absolute(folder / f"*{suffix}")]
    return [_absolute(path) for path in paths]


def _absolute(path: Path) -> str:
    """Return an absolute path; links stay, so that they may be moved, unless `..` follows one."""
    return str(path.resolve() if ".." in path.parts else path.absolute())
