"""A data set's files, or its generator, into data/raw: the event table and its manifest."""

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from dayahead.core.errors import DataError, SourceError
from dayahead.core.files import folder_written_whole, write_json, write_text
from dayahead.core.fingerprints import fingerprint
from dayahead.core.project import cache_root
from dayahead.core.space import require_space
from dayahead.core.store import linked
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.convert import Conversion, Source, converted, space_needed
from dayahead.download.parts import part_name
from dayahead.download.quality_report import Finding, judged, report, require_quality
from dayahead.download.sources import fetched, listed, require_room
from dayahead.download.synthetic import as_utc, log_end

_log = logging.getLogger(__name__)


def download(dataset: DatasetConfig, name: str, folder: Path) -> None:
    """Fetch or generate a data set; write events-*.parquet, quality.md and manifest.json.

    `folder` is written whole or not at all. Rows keep the order of `source.urls`, of a glob's
    sorted matches and of an archive's members. What was converted before comes from the store.

    Raises:
        SourceError: a source is missing, damaged or not as the data set's file says.
        DataError: `folder` or the store cannot be written, or the disk is too small.
    """
    try:
        with folder_written_whole(folder) as aside:
            files = _converted_files(dataset, name)
            findings = judged(files, dataset)
            for finding in findings:
                if finding.found:
                    _log.info("quality: %s", finding.told())
            require_quality(findings, name)
            _link_parts(files, aside)
            write_text(aside / "quality.md", report(findings, name, len(files)))
            write_json(aside / "manifest.json", _manifest(dataset, name, files, findings))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}; free space or rights") from None


Files = list[tuple[Source, Conversion]]


def _converted_files(dataset: DatasetConfig, name: str) -> Files:
    sources = _sources(dataset, name)
    needed = sum(space_needed(source, dataset) for source in sources)
    require_space(cache_root(), needed, f"the event table of {name}")
    files = [(source, converted(source, dataset)) for source in sources]
    if not any(conversion.events for _, conversion in files):
        raise SourceError(f"datasets/{name}.yaml: no event in any of its {len(files)} files")
    return files


def _sources(dataset: DatasetConfig, name: str) -> list[Source]:
    """Fetch all files before the first one is converted, so that a wrong one is told early."""
    if dataset.source.synthetic is not None:
        settings = fingerprint({"config": repr(dataset.source.synthetic)})
        return [Source("synthetic", "synthetic", "synthetic", 0, settings, None)]
    files = listed(dataset.source.urls, dataset.source.manual)
    if unknown := sorted(set(dataset.source.sha256) - {file.name for file in files}):
        raise SourceError(
            f"datasets/{name}.yaml: source.sha256 names {', '.join(unknown)}, but source.urls "
            f"finds only {', '.join(file.name for file in files)[:300]}"
        )
    require_room(files)
    sources = []
    for file in files:
        path, sha256 = fetched(file, dataset.source.sha256.get(file.name))
        n_bytes = path.stat().st_size
        sources.append(Source(file.recorded, file.name, file.shown, n_bytes, sha256, path))
    return sources


def _link_parts(files: Files, folder: Path) -> None:
    numbers = count()
    for _, conversion in files:
        for part in conversion.parts:
            linked(conversion.folder / part.file, folder / part_name(next(numbers)))


def _log_end(dataset: DatasetConfig, parts: list[dict[str, Any]]) -> datetime:
    """Up to here the log is whole: as its file says, else up to its last event.

    Where it says so, events beyond do not count: a file of whole sessions holds stray ones of days
    whose own files are still to come.
    """
    if dataset.time.complete_until is not None:
        return as_utc(dataset.time.complete_until)
    if dataset.source.synthetic is not None:
        return log_end(dataset.source.synthetic)
    return max(datetime.fromisoformat(part["last_event"]) for part in parts)


def _manifest(
    dataset: DatasetConfig, name: str, files: Files, findings: list[Finding]
) -> dict[str, Any]:
    parts = list(_listed_parts(files))
    return {
        "dataset": name,
        "log_end": _log_end(dataset, parts).isoformat(),
        "rows": sum(conversion.rows for _, conversion in files),
        "events": sum(conversion.events for _, conversion in files),
        "dropped": dict(sum((Counter(conversion.dropped) for _, conversion in files), Counter())),
        "files": [
            {
                "url": source.url,
                "file": source.file,
                "bytes": source.bytes,
                "sha256": source.sha256,
                "rows": conversion.rows,
                "events": conversion.events,
                "dropped": conversion.dropped,
            }
            for source, conversion in files
        ],
        "parts": parts,
        "quality": [vars(finding) | {"share": finding.share} for finding in findings],
    }


def _listed_parts(files: Files) -> Iterator[dict[str, Any]]:
    """Parts under their names in data/raw; a row's number in the log is `first_row` + `row`."""
    numbers = count()
    first_row = 0
    for _, conversion in files:
        for part in conversion.parts:
            yield vars(part) | {"file": part_name(next(numbers)), "first_row": first_row}
        first_row += conversion.rows
