"""The store of finished things, shared by every experiment of a project.

DVC empties a stage's outputs before it runs; what is finished is kept here and linked out again.
"""

import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from dayahead.core.files import folder_written_whole, read_json, write_json
from dayahead.core.fingerprints import sha256_of

T = TypeVar("T")
_DAMAGED = ".damaged"
_CONTENTS = "contents.json"
_log = logging.getLogger(__name__)


def linked(source: Path, target: Path) -> None:
    """Give a stored file a second name, or copy it where the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)


class DamagedBlobError(Exception):
    """A stored file is missing, or its bytes are not what its name says."""


@dataclass(frozen=True)
class Blobs:
    """Files by the sha256 of their content: what is the same is held once."""

    folder: Path

    def put(self, path: Path, known: str | None = None) -> str:
        """Keep a file's content; return its sha256, which is `known` if it was linked out."""
        if known is not None and (blob := self._blob(known)).exists() and blob.samefile(path):
            return known
        name = sha256_of(path)
        blob = self._blob(name)
        if not blob.exists():
            linked(path, blob)
        return name

    def get(self, name: str, target: Path) -> None:
        """Link a file out.

        Raises:
            DamagedBlobError: it is missing or damaged; what is damaged is set aside.
        """
        blob = self._blob(name)
        if not blob.is_file():
            raise DamagedBlobError(f"{blob}: missing")
        if sha256_of(blob) != name:
            aside = blob.with_suffix(_DAMAGED)
            blob.replace(aside)
            raise DamagedBlobError(f"{blob}: its bytes have changed; set aside as {aside.name}")
        linked(blob, target)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove every other file but those set aside."""
        for blob in self.folder.glob("??/*"):
            if blob.name not in names and blob.suffix != _DAMAGED:
                blob.unlink()

    def _blob(self, name: str) -> Path:
        return self.folder / name[:2] / name


@dataclass(frozen=True)
class Entries:
    """Folders of files by a key that names all they depend on; each is there whole or not at all.

    What one process reads, no other removes meanwhile.
    """

    folder: Path

    def put(self, key: str, write: Callable[[Path], None]) -> None:
        """Let `write` fill an entry's folder; one that is there already stays."""
        with self._locked():
            if self._entry(key).exists():
                return
            try:
                with folder_written_whole(self._entry(key)) as aside:
                    write(aside)
                    files = sorted(path for path in aside.rglob("*") if path.is_file())
                    names = {path.relative_to(aside).as_posix(): sha256_of(path) for path in files}
                    write_json(aside / _CONTENTS, names)
            except OSError as error:  # of a full disk it does not say which
                told = error.strerror or str(error)
                raise OSError(error.errno, told, str(self._entry(key))) from None

    def get(self, key: str, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of an entry's folder; None where there is none.

        A damaged one is set aside, with a warning.
        """
        entry = self._entry(key)
        with self._locked():
            if not entry.exists():
                return None
            try:
                names = read_json(entry / _CONTENTS)
                bad = [name for name, sha in names.items() if sha256_of(entry / name) != sha]
            except (OSError, ValueError, AttributeError) as error:
                bad = [f"{type(error).__name__}: {error}"]
            if not bad:
                os.utime(entry)  # what was of use lately is kept
                return read(entry)
            aside = entry.with_suffix(_DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            entry.replace(aside)
        _log.warning("%s: damaged (%s), set aside as %s", entry, ", ".join(bad), aside.name)
        return None

    def remove(self, keys: Collection[str]) -> None:
        """Remove entries, if they are there."""
        with self._locked():
            for key in keys:
                shutil.rmtree(self._entry(key), ignore_errors=True)

    def _entry(self, key: str) -> Path:
        return self.folder / key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "lock"):
            yield
