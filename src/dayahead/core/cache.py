"""The cache: folders of finished work by a key of everything that they depend on.

DVC empties a stage's outputs before it runs. Finished work is kept here, under `.dayahead/`, and
linked into the outputs again. All experiments of a project share it, also those of `--temp` and
`--queue`.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from dayahead.core.errors import DataError
from dayahead.core.files import read_json, remove_tree, write_json
from dayahead.core.fingerprints import sha256_of

T = TypeVar("T")
KINDS = {
    "downloads": "source files",
    "events": "source files, converted",
    "windows": "runs of preprocess",
    "fits": "models after a window",
    "evaluations": "evaluated windows",
}
"""Kinds of entries: folders of `.dayahead/`, and the names that `dayahead cache` shows."""
DAMAGED = ".damaged"
CONTENTS = "contents.json"
"""File of every entry: the sha256 of each other file by its path in the entry."""
_log = logging.getLogger(__name__)


class UnreadableEntryError(DataError):
    """An entry's files are as they were written, but its reader cannot use them."""


@contextmanager
def reading_entry(*kinds: type[Exception]) -> Iterator[None]:
    """Read files of an entry in this block; `kinds` are further errors that their formats raise.

    Raises:
        UnreadableEntryError: a file is missing or not as expected.
    """
    of_python = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
    expected: tuple[type[Exception], ...] = (*of_python, DataError, *kinds)
    try:
        yield
    except expected as error:
        # An error of the disk is no fault of the entry. Errors of a format have no errno.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise
        reason = " ".join(str(error).split())
        raise UnreadableEntryError(f"{type(error).__name__}: {reason}") from None


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def recorded_hashes(entry: Path) -> dict[str, str]:
    """Return the sha256 of each file of an entry, by its path in it.

    They were recorded when the entry was built, and verified before it was passed to `read`.
    """
    hashes: dict[str, str] = read_json(entry / CONTENTS)
    return hashes


def link_tree(source: Path, target: Path) -> None:
    """Link or copy all files of a folder into another, except an entry's contents.json."""
    for name, path in _files(source).items():
        link_or_copy(path, target / name)


@dataclass(frozen=True)
class Entry:
    """One entry of the cache, as `dayahead cache` lists it."""

    path: Path
    n_bytes: int
    """Bytes on the disk; a file shared by several entries counts for the first of them."""
    last_used: float
    """Unix time."""


@dataclass(frozen=True)
class Cache:
    """Entries of one kind: each is a folder that exists whole and verified, or not at all.

    An entry holds `contents.json` with the sha256 of each of its files. An entry whose files no
    longer match, or whose reader raises UnreadableEntryError, is set aside as `<key>.damaged`, with
    a warning, and built again. Every entry has its own lock, so that no process removes an entry
    that another reads, and none waits for work on other entries.
    """

    folder: Path

    def __contains__(self, key: str) -> bool:
        """Return whether an entry exists; its files are not verified."""
        return (self.folder / key).is_dir()

    def partial(self, key: str) -> Path:
        """Return the folder in which an entry is built, or an interrupted build is resumed."""
        return self.folder / f".{key}.partial"

    def get(self, key: str, read: Callable[[Path], T]) -> T | None:
        """Return the result of `read` for an entry's folder, or None if there is no valid entry."""
        if not (self.folder / key).exists():
            return None
        with self._lock(key):
            return self._read(key, read)

    def put(self, key: str, build: Callable[[Path], None]) -> bool:
        """Let `build` fill an entry's folder, unless the entry exists; return whether it did.

        Raises:
            OSError: it cannot be written; names the entry.
        """
        with self._lock(key):
            is_missing = not (self.folder / key).exists()
            if is_missing:
                self._build(key, build, is_resumed=False)
            return is_missing

    def get_or_build(
        self,
        key: str,
        build: Callable[[Path], None],
        read: Callable[[Path], T],
        *,
        is_resumed: bool = False,
    ) -> T:
        """Return the result of `read` for an entry's folder, which `build` fills if it is missing.

        Args:
            key: identifies everything that the entry depends on.
            build: writes the entry's files into the folder that it is given.
            read: reads the verified folder of the entry.
            is_resumed: whether files of an interrupted `build` are kept for the next one.

        Raises:
            OSError: the entry cannot be written; names the entry.
        """
        with self._lock(key):
            found = self._read(key, read)
            if found is None:
                self._build(key, build, is_resumed=is_resumed)
                found = read(self.folder / key)
            return found

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all entries that begin with `prefix`, the one used last first."""
        used = {
            path.name: state.st_mtime_ns
            for path, state in self._states()
            if path.name == _key_of(path) and path.name.startswith(prefix)
        }
        return sorted(used, key=lambda key: used[key], reverse=True)

    def remove(self, keys: Collection[str]) -> None:
        """Remove entries, if they exist."""
        for key in keys:
            if (self.folder / key).exists():
                with self._lock(key):
                    self._remove(self.folder / key)

    def entries(self) -> list[Entry]:
        """Return every entry with its size, the one used last first."""
        seen: set[int] = set()
        found = []
        for key in self.keys():
            with suppress(FileNotFoundError):  # removed by another process
                found.append(_described(self.folder / key, seen))
        return found

    def prune(self, before: float) -> int:
        """Remove entries that were last used before that Unix time, and return how many.

        Damaged and unfinished ones are removed too; an entry in use by a process stays.
        """
        return sum(self.discard(path) for path, state in self._states() if state.st_mtime < before)

    def remove_superseded(self, prefix: str, key: str | None) -> None:
        """Remove all entries that begin with `prefix`, except `key`, which replaces them.

        Damaged and unfinished entries are removed too; an entry in use by a process stays.
        """
        for path in self._folders():
            if (other := _key_of(path)).startswith(prefix) and other != key:
                self.discard(path)

    def _folders(self) -> list[Path]:
        """Return the folders of all entries, including damaged and unfinished ones."""
        return [path for path in self.folder.glob("*") if path.is_dir() and path.name != "locks"]

    def _states(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield these folders, but for those that another process removes meanwhile."""
        for path in self._folders():
            with suppress(FileNotFoundError):
                yield path, path.stat()

    def discard(self, path: Path) -> bool:
        """Remove an entry's folder, also a damaged or unfinished one; False while it is in use."""
        try:
            with self._lock(_key_of(path), blocking=False):
                self._remove(path)
        except Timeout:
            return False
        return not path.exists()

    def _remove(self, path: Path) -> None:
        """Remove an entry's folder, also a damaged or unfinished one, whose lock is held."""
        if path.name == _key_of(path):  # renamed first: a kill must not leave half of it
            remove_tree(self.partial(path.name))
            with suppress(FileNotFoundError):
                path = path.replace(self.partial(path.name))
        remove_tree(path)

    def _read(self, key: str, read: Callable[[Path], T]) -> T | None:
        entry = self.folder / key
        if not entry.exists():
            return None
        if bad := _damages(entry):
            self._set_aside(key, ", ".join(bad))
            return None
        os.utime(entry)  # entries are pruned by the time of their last use
        try:
            return read(entry)
        except UnreadableEntryError as error:
            self._set_aside(key, error)
            return None

    def _set_aside(self, key: str, reason: object) -> None:
        aside = self.folder / f"{key}{DAMAGED}"
        remove_tree(aside)
        (self.folder / key).replace(aside)
        _log.warning("%s: damaged (%s), set aside as %s", self.folder / key, reason, aside.name)

    def _build(self, key: str, build: Callable[[Path], None], *, is_resumed: bool) -> None:
        entry = self.folder / key
        partial = self.partial(key)
        if not (is_resumed and _is_own(partial)):
            remove_tree(partial)  # left by a killed process
        try:
            partial.mkdir(parents=True, exist_ok=True)
            build(partial)
            write_json(partial / CONTENTS, _contents(partial))
            if entry.is_symlink():  # a dangling link, as the entry does not exist
                entry.unlink()
            # A rename is atomic: readers see the whole entry or none.
            partial.replace(entry)
        except OSError as error:  # for a full disk it does not name the file
            reason = error.strerror or str(error)
            raise OSError(error.errno, reason, str(error.filename or entry)) from None
        finally:
            if not is_resumed:
                remove_tree(partial)

    def _lock(self, key: str, *, blocking: bool = True) -> FileLock:
        locks = self.folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        return FileLock(locks / f"{key}.lock", blocking=blocking)


def _key_of(path: Path) -> str:
    return path.name.removeprefix(".").removesuffix(".partial").removesuffix(DAMAGED)


def _is_own(partial: Path) -> bool:
    """Whether no part of an unfinished entry is a link: a build would write to its target."""
    return not any(path.is_symlink() for path in (partial, *partial.rglob("*")))


def _files(folder: Path) -> dict[str, Path]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path for name, path in named.items() if name != CONTENTS}


def _contents(folder: Path) -> dict[str, str]:
    """Hash every file, in threads, because hashing releases the GIL."""
    files = _files(folder)
    with ThreadPoolExecutor() as threads:
        return dict(zip(files, threads.map(sha256_of, files.values()), strict=True))


def _damages(entry: Path) -> list[str]:
    """Return the files of an entry that differ from what was written."""
    try:
        wanted = read_json(entry / CONTENTS)
        found = _contents(entry)
        return sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return [f"{type(error).__name__}: {error}"]


def _described(entry: Path, seen: set[int]) -> Entry:
    n_bytes = 0
    for path in entry.rglob("*"):
        with suppress(FileNotFoundError):  # removed by another process
            about = path.stat()
            if about.st_ino not in seen:
                n_bytes += about.st_blocks * 512
            seen.add(about.st_ino)
    return Entry(entry, n_bytes, entry.stat().st_mtime)
