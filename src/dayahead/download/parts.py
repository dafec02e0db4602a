"""Steps that the log and the table of items have in common: files fetched, losses, linked parts."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dayahead.core.cache import link_or_copy
from dayahead.core.files import require_space
from dayahead.core.project import cache_root
from dayahead.dataset.losses import large_losses
from dayahead.dataset.manifest import EventsFile, SourceRecord
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.source import TABLES
from dayahead.download.convert import Files, space_needed
from dayahead.download.sources import Source, fetch_sources
from dayahead.download.warehouses import fetch_tables

_log = logging.getLogger(__name__)


def fetch_files(dataset: DatasetConfig, name: str) -> list[Source]:
    """Fetch the files or tables of a source, and check that there is space to convert them.

    Raises:
        SourceError: see `fetch_sources` and `fetch_tables`.
        DataError: the disk is too small.
    """
    is_table = dataset.source.format in TABLES
    sources = fetch_tables(dataset) if is_table else fetch_sources(dataset, name)
    needed = sum(space_needed(source, dataset) for source in sources)
    require_space(cache_root(), needed, f"the event table of {name}")
    return sources


def dropped_of(files: Files) -> dict[str, int]:
    """Return the number of rows that are left out, by reason."""
    return dict(sum((Counter(each.dropped) for each in files), Counter()))


def report_losses(files: Files, unit: str, causes: Mapping[str, str]) -> None:
    """Log a line for each reason for which more than a tenth of the rows are left out.

    `causes` are the settings by reason.
    """
    losses = {causes.get(reason, reason): n for reason, n in dropped_of(files).items()}
    for line in large_losses("download", unit, sum(each.rows for each in files), losses):
        _log.warning("%s", line)


def link_parts(files: Files, folder: Path, name: str) -> tuple[EventsFile, ...]:
    """Link the converted files into a folder, `name` with their numbers in the log or table."""
    parts: list[EventsFile] = []
    first_row = 0
    for conversion in files:
        for part in conversion.parts:
            file = name.format(len(parts))
            link_or_copy(conversion.path(part), folder / file)
            parts.append(replace(part, file=file, first_row=first_row))
        first_row += conversion.rows
    return tuple(parts)


def records_of(files: Files) -> tuple[SourceRecord, ...]:
    """Return what manifest.json says of each source file."""
    return tuple(
        SourceRecord(
            each.source.url,
            each.source.file,
            each.source.bytes,
            each.source.sha256,
            each.rows,
            each.events,
            each.dropped,
        )
        for each in files
    )
