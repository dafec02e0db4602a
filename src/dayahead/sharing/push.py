"""Send entries of the cache to a remote."""

from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from dayahead.core.cache import Cache
from dayahead.core.files import write_text
from dayahead.sharing.manifest import Entry, EntryError, EntryFile, Manifest
from dayahead.sharing.remote import FILES, Remote
from dayahead.sharing.report import Report
from dayahead.sharing.threads import N_THREADS, run_all


def push(root: Path, remote: Remote, entries: Iterable[Entry]) -> Report:
    """Send entries of the cache `root`, unless the remote has them whole.

    An entry is verified before it is sent. Its manifest is sent after its files, so that nobody
    pulls half an entry; files that an interrupted push has sent are not sent again.

    Raises:
        RemoteError: the remote cannot be reached or written.
    """
    report = Report()
    with (
        ThreadPoolExecutor(N_THREADS) as pool,
        ThreadPoolExecutor(N_THREADS) as files,  # tasks of `pool` wait for these
        tqdm(desc="push", unit="B", unit_scale=True, disable=None) as bar,
    ):
        run_all(pool, _Push(root, remote, files, bar, report).send, entries)
    return report


@dataclass(frozen=True)
class _Push:
    root: Path
    remote: Remote
    files: Executor
    bar: "tqdm[None]"
    report: Report
    sent: set[str] = field(default_factory=set)
    """Hashes of the files sent."""

    def send(self, entry: Entry) -> None:
        """Send an entry, if the remote has none or a damaged one."""
        kind, key = entry
        if self._is_there(entry):
            self.report.add(self.report.present, entry)
        elif not Cache(self.root / kind).get(key, partial(self._send, entry)):
            self.report.refuse(entry, "it is damaged in the cache")

    def _is_there(self, entry: Entry) -> bool:
        try:
            return entry in self.remote and bool(self.remote.manifest(entry).files)
        except EntryError:
            return False

    def _send(self, entry: Entry, folder: Path) -> bool:
        try:
            manifest = Manifest.of(folder)
        except EntryError as error:
            self.report.refuse(entry, error)
            return True
        run_all(self.files, partial(self._send_file, entry, folder), manifest.files.items())
        with TemporaryDirectory(prefix="dayahead-") as scratch:
            path = Path(scratch) / "manifest.json"
            write_text(path, manifest.text())
            self.remote.send_manifest(path, entry)
        self.report.add(self.report.moved, entry)
        return True

    def _send_file(self, entry: Entry, folder: Path, named: tuple[str, EntryFile]) -> None:
        name, file = named
        if file.sha256 in self.sent or (FILES, file.sha256) in self.remote.names:
            return
        self.remote.send_file(folder / name, file.sha256)
        self.sent.add(file.sha256)
        self.report.add(self.report.n_files, entry)
        self.report.add(self.report.n_bytes, entry, file.bytes)
        self.bar.update(file.bytes)
