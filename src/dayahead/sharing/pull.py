"""Fetch entries of the cache from a remote."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from dayahead.core.cache import Cache, link_or_copy, recorded_hashes
from dayahead.core.files import require_space
from dayahead.core.fingerprints import sha256_of
from dayahead.sharing.manifest import Entry, EntryError, EntryFile, Manifest
from dayahead.sharing.remote import Remote
from dayahead.sharing.report import Report
from dayahead.sharing.threads import N_THREADS, run_all


def pull(root: Path, remote: Remote, entries: Iterable[Entry], data: Iterable[Path]) -> Report:
    """Fetch entries that the remote has into the cache `root`, unless they are there.

    Files that are in other entries or in the folders `data` are linked from there. An entry appears
    only if all its files have the hashes of its manifest; otherwise it is refused.

    Raises:
        RemoteError: the remote cannot be reached or read.
        DataError: the disk is too small.
    """
    report = Report()
    # Two pools: tasks of one wait for those of the other, which in one pool could deadlock.
    with ThreadPoolExecutor(N_THREADS) as pool, ThreadPoolExecutor(N_THREADS) as files:
        missing = []
        for kind, key in entries:
            if key in Cache(root / kind):
                report.add(report.present, (kind, key))
            elif (kind, key) in remote:
                missing.append((kind, key))
        manifests = dict(run_all(pool, partial(_read_manifest, remote, report), missing))
        found = {entry: manifest for entry, manifest in manifests.items() if manifest is not None}
        listed = [file for each in found.values() for file in each.files.values()]
        here = _local_files(root, data, {file.sha256: file.bytes for file in listed})
        n_bytes = sum(file.bytes for file in listed if file.sha256 not in here)
        require_space(root, n_bytes, f"pulling {len(found)} entries from {remote.name}")
        with tqdm(desc="pull", total=n_bytes, unit="B", unit_scale=True, disable=None) as bar:
            fetching = _Pull(root, remote, files, bar, report, here)
            run_all(pool, fetching.fetch, found.items())
    return report


def _read_manifest(remote: Remote, report: Report, entry: Entry) -> tuple[Entry, Manifest | None]:
    try:
        return entry, remote.manifest(entry)
    except EntryError as error:
        report.refuse(entry, error)
        return entry, None


def _local_files(root: Path, data: Iterable[Path], sizes: Mapping[str, int]) -> dict[str, Path]:
    """Find files with these hashes on this machine; some may be damaged (see `_is_linked`)."""
    found: dict[str, Path] = {}
    if not sizes:
        return found
    for contents in root.glob("*/*/contents.json"):
        with suppress(OSError, ValueError, AttributeError):
            hashes = recorded_hashes(contents.parent)
            found |= {sha256: contents.parent / name for name, sha256 in hashes.items()}
    others = {n_bytes for sha256, n_bytes in sizes.items() if sha256 not in found}
    for path in (path for folder in data for path in folder.rglob("*") if path.is_file()):
        # Only files of a wanted size are hashed.
        if path.stat().st_size in others:
            found[sha256_of(path)] = path
    return {sha256: path for sha256, path in found.items() if sha256 in sizes}


@dataclass(frozen=True)
class _Pull:
    root: Path
    remote: Remote
    files: Executor
    bar: "tqdm[None]"
    report: Report
    here: Mapping[str, Path]
    """Files on this machine by sha256."""

    def fetch(self, described: tuple[Entry, Manifest]) -> None:
        """Build an entry of the cache, or refuse it."""
        entry, manifest = described
        kind, key = entry

        def build(folder: Path) -> None:
            run_all(self.files, partial(self._fetch_file, entry, folder), manifest.files.items())

        try:
            Cache(self.root / kind).put(key, build)
        except EntryError as error:
            self.report.refuse(entry, error)
        else:
            self.report.add(self.report.moved, entry)

    def _fetch_file(self, entry: Entry, folder: Path, named: tuple[str, EntryFile]) -> None:
        name, file = named
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._is_linked(file.sha256, target):
            return
        try:
            self.remote.fetch(file.sha256, target, file.bytes)
        except EntryError as error:
            raise EntryError(f"{name} {error}") from None
        if (n_bytes := target.stat().st_size) != file.bytes:
            raise EntryError(f"{name} is damaged there: it has {n_bytes} bytes, not {file.bytes}")
        if (found := sha256_of(target)) != file.sha256:
            raise EntryError(f"{name} is damaged there: its sha256 is {found}, not {file.sha256}")
        self.report.add(self.report.n_files, entry)
        self.report.add(self.report.n_bytes, entry, file.bytes)
        self.bar.update(file.bytes)

    def _is_linked(self, sha256: str, target: Path) -> bool:
        """Link a file of this machine that has this content, if there is one."""
        if sha256 not in self.here:
            return False
        with suppress(OSError):  # it may have been removed
            link_or_copy(self.here[sha256], target)
            if sha256_of(target) == sha256:
                return True
        target.unlink(missing_ok=True)
        return False
