"""Where results come from: what a reader needs to make them again.

The page of a run is an output that DVC caches and shares, so equal inputs must give equal bytes:
it cannot name the commit, which differs where the same results are recorded twice, and which is
made after the run. It has the hash under which dvc.lock records the results, by which Git finds it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dayahead.config.changed_settings import Setting, command_of
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.manifest import MANIFEST, RawManifest


@dataclass(frozen=True)
class Origin:
    """Data, results and command of a run."""

    dataset: str
    n_files: int
    n_bytes: int
    n_events: int
    data_sha256: str
    """Hash of data/raw/manifest.json, which has the hash of every source file."""
    results_md5: str
    """Hash of results/windows.csv, as in dvc.lock."""
    command: str


def origin_of(raw: Path, results: Path, settings: Mapping[str, Setting]) -> Origin:
    """Return the origin of the results in a folder.

    Raises:
        DataError: data/raw/manifest.json is missing or damaged.
    """
    manifest = RawManifest.read(raw)
    table = (results / "windows.csv").read_bytes()
    return Origin(
        dataset=manifest.dataset,
        n_files=len(manifest.files),
        n_bytes=sum(file.bytes for file in manifest.files),
        n_events=manifest.events,
        data_sha256=sha256_of(raw / MANIFEST),
        results_md5=hashlib.md5(table, usedforsecurity=False).hexdigest(),
        command=command_of(settings),
    )
