"""A data set's files, or its generator, to data/raw: the event table and its manifest."""

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

from dayahead.core.errors import DataError, SourceError, cure_of
from dayahead.core.files import folder_written_whole, write_text
from dayahead.core.phases import phase
from dayahead.dataset.item_table import item_table
from dayahead.dataset.manifest import EVENTS_FILE, QUALITY_REPORT, RawManifest
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.convert import Files, convert
from dayahead.download.duplicates import without_duplicates
from dayahead.download.items import convert_items, fetch_items
from dayahead.download.parts import (
    dropped_of,
    fetch_files,
    link_parts,
    records_of,
    report_losses,
)
from dayahead.download.quality import check_quality, report
from dayahead.download.reach import Reach, reach_of, warn_of_strays
from dayahead.download.spellings import check_spellings
from dayahead.download.synthetic import log_end

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


def download(dataset: DatasetConfig, name: str, folder: Path) -> None:
    """Fetch or generate a data set; write its events and items, quality.md and manifest.json.

    Events are in events-*.parquet, a table of items in items-*.parquet. `folder` is written whole
    or not at all. Rows keep the order of `source.urls`, of a glob's sorted matches and of an
    archive's members. What is fetched and converted is cached.

    Raises:
        SourceError: a source is missing, damaged or not as the data set's file says.
        DataError: `folder` or the cache cannot be written, or the disk is too small.
    """
    table = item_table(dataset)
    try:
        with folder_written_whole(folder) as aside:
            with phase("fetch"):
                sources = fetch_files(dataset, name)
                of_items = fetch_items(table, name) if table else []
            with phase("convert"):
                converted = [convert(source, dataset) for source in sources]
                items = convert_items(of_items, table, name) if table else None
            with phase("check"):
                files = without_duplicates(converted, dataset)
                spellings = check_spellings(converted, dataset)
                reach = reach_of(files, dataset, today())
                results = check_quality(files, dataset, name, reach, spellings)
            report_losses(files, "rows", CAUSES)
            if reach is None:
                raise SourceError(f"datasets/{name}.yaml: {_why_no_event(files)}")
            warn_of_strays(reach, name)
            with phase("link"):
                parts = link_parts(files, aside, EVENTS_FILE)
                record = items.link(aside) if items else None
            quality = report(results, name, len(files), items.quality if items else None)
            write_text(aside / QUALITY_REPORT, quality)
            RawManifest(
                dataset=name,
                log_end=_log_end(dataset, reach),
                rows=sum(each.rows for each in files),
                events=sum(each.events for each in files),
                dropped=dropped_of(files),
                files=records_of(files),
                parts=parts,
                quality=results,
                span=reach.span,
                items=record,
            ).write(aside)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}; {cure_of(error)}") from None


def _why_no_event(files: Files) -> str:
    n_rows = sum(each.rows for each in files)
    found: dict[str, Counter[str]] = {}
    for conversion in files:
        for column, values in conversion.filtered.items():
            found.setdefault(column, Counter()).update(values)
    dropped = dropped_of(files).items()
    n_filtered = sum(n for reason, n in dropped if reason.startswith("source.where "))
    if n_rows and n_filtered == n_rows:
        shown = [
            f"column {column} has {value} ({n:,} rows)"
            for column, counts in found.items()
            for value, n in counts.most_common(10)
        ]
        return f"source.where leaves out all {n_rows:,} rows: {', '.join(shown)}. Correct it"
    if not n_rows:
        names = ", ".join(each.source.file for each in files)[:300]
        return f"all of its {len(files)} files are empty: {names}. Fetch or copy them again"
    return f"no event in any of its {len(files)} files"


def _log_end(dataset: DatasetConfig, reach: Reach) -> datetime:
    """Return up to when the log is complete: as configured, else up to its last event.

    Events after the configured time do not count: a file of whole sessions holds some of days
    whose own files are still to come. Nor do strays.
    """
    if dataset.source.synthetic is not None and dataset.time.complete_until is None:
        return log_end(dataset.source.synthetic)
    return dataset.time.log_end(reach.last_event, datetime.now(UTC))


def today() -> date:
    """Return today's date, UTC."""
    return datetime.now(UTC).date()
