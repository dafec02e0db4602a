"""A data set's files, or its generator, to data/raw: the event table and its manifest."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from dayahead.core.cache import link_or_copy
from dayahead.core.errors import DataError, SourceError, cure_of
from dayahead.core.files import folder_written_whole, require_space, write_text
from dayahead.core.phases import phase
from dayahead.core.project import cache_root
from dayahead.dataset.losses import large_losses
from dayahead.dataset.manifest import (
    QUALITY_REPORT,
    EventsFile,
    RawManifest,
    SourceRecord,
    events_file_name,
)
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.source import TABLES
from dayahead.download.convert import Conversion, convert, space_needed
from dayahead.download.duplicates import without_duplicates
from dayahead.download.quality import check_quality, report
from dayahead.download.reach import Reach, reach_of, warn_of_strays
from dayahead.download.sources import Source, fetch_sources
from dayahead.download.spellings import check_spellings
from dayahead.download.synthetic import log_end
from dayahead.download.warehouses import fetch_tables

CAUSES = {
    "unreadable": "quality.unreadable, as a value cannot be read",
    "forgotten": "forgotten.users",
    "duplicate": "sessions.duplicates: drop",
    "repeated event_id": "columns.event_id",
    "no session_id": "columns.session_id, as they have none",
    "no item_id": "columns.item_id, as they have none",
    "no event_time": "time.column, as they have none",
    "no session_start": "columns.session_start, as they have none",
    "outside time.between": "time.between",
}
"""Settings by the reasons for which rows are no events."""
_log = logging.getLogger(__name__)
ConvertedFiles = Sequence[tuple[Source, Conversion]]


def download(dataset: DatasetConfig, name: str, folder: Path) -> None:
    """Fetch or generate a data set; write events-*.parquet, quality.md and manifest.json.

    `folder` is written whole or not at all. Rows keep the order of `source.urls`, of a glob's
    sorted matches and of an archive's members. What is fetched and converted is cached.

    Raises:
        SourceError: a source is missing, damaged or not as the data set's file says.
        DataError: `folder` or the cache cannot be written, or the disk is too small.
    """
    try:
        with folder_written_whole(folder) as aside:
            converted = _converted_files(dataset, name)
            with phase("check"):
                files = without_duplicates(converted, dataset)
                counts = [(source, conversion.quality) for source, conversion in files]
                spellings = check_spellings(converted, dataset)
                reach = reach_of(counts, dataset, today())
                results = check_quality(counts, dataset, name, reach, spellings)
            _report_losses(files)
            if reach is None:
                raise SourceError(f"datasets/{name}.yaml: {_why_no_event(files)}")
            warn_of_strays(reach, name)
            with phase("link"):
                parts = tuple(_link_parts(files, aside))
            write_text(aside / QUALITY_REPORT, report(results, name, len(files)))
            RawManifest(
                dataset=name,
                log_end=_log_end(dataset, reach),
                rows=sum(conversion.rows for _, conversion in files),
                events=sum(conversion.events for _, conversion in files),
                dropped=dict(sum((Counter(each.dropped) for _, each in files), Counter())),
                files=tuple(_source_record(source, conversion) for source, conversion in files),
                parts=parts,
                quality=results,
                span=reach.span,
            ).write(aside)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}; {cure_of(error)}") from None


def _converted_files(dataset: DatasetConfig, name: str) -> ConvertedFiles:
    with phase("fetch"):
        is_table = dataset.source.format in TABLES
        sources = fetch_tables(dataset) if is_table else fetch_sources(dataset, name)
    needed = sum(space_needed(source, dataset) for source in sources)
    require_space(cache_root(), needed, f"the event table of {name}")
    with phase("convert"):
        return [(source, convert(source, dataset)) for source in sources]


def _report_losses(files: ConvertedFiles) -> None:
    """Log a line for each reason for which more than a tenth of the rows are no events."""
    dropped = sum((Counter(each.dropped) for _, each in files), Counter())
    losses = {CAUSES.get(reason, reason): n for reason, n in dropped.items()}
    for line in large_losses("download", "rows", sum(each.rows for _, each in files), losses):
        _log.warning("%s", line)


def _link_parts(files: ConvertedFiles, folder: Path) -> Iterator[EventsFile]:
    """Link the events files under their numbers in the whole log."""
    number = first_row = 0
    for _, conversion in files:
        for part in conversion.parts:
            name = events_file_name(number)
            link_or_copy(conversion.path(part), folder / name)
            yield replace(part, file=name, first_row=first_row)
            number += 1
        first_row += conversion.rows


def _why_no_event(files: ConvertedFiles) -> str:
    n_rows = sum(conversion.rows for _, conversion in files)
    found: dict[str, Counter[str]] = {}
    for _, conversion in files:
        for column, values in conversion.filtered.items():
            found.setdefault(column, Counter()).update(values)
    n_filtered = sum(
        n
        for _, conversion in files
        for reason, n in conversion.dropped.items()
        if reason.startswith("source.where ")
    )
    if n_rows and n_filtered == n_rows:
        shown = [
            f"column {column} has {value} ({n:,} rows)"
            for column, counts in found.items()
            for value, n in counts.most_common(10)
        ]
        return f"source.where leaves out all {n_rows:,} rows: {', '.join(shown)}. Correct it"
    if not n_rows:
        names = ", ".join(source.file for source, _ in files)[:300]
        return f"all of its {len(files)} files are empty: {names}. Fetch or copy them again"
    return f"no event in any of its {len(files)} files"


def _source_record(source: Source, conversion: Conversion) -> SourceRecord:
    counts = conversion.rows, conversion.events, conversion.dropped
    return SourceRecord(source.url, source.file, source.bytes, source.sha256, *counts)


def _log_end(dataset: DatasetConfig, reach: Reach) -> datetime:
    """Return up to when the log is complete: as configured, else up to its last event.

    Events after the configured time do not count: a file of whole sessions holds some of days
    whose own files are still to come. Nor do strays.
    """
    if dataset.source.synthetic is not None and dataset.time.complete_until is None:
        return log_end(dataset.source.synthetic)
    return dataset.time.log_end(reach.last_event, now())


def today() -> date:
    """Return today's date, UTC."""
    return now().date()


def now() -> datetime:
    """Return the present, UTC."""
    return datetime.now(UTC)
