"""The store of finished things, shared by every experiment of a project.

DVC empties a stage's outputs before it runs; what is finished is kept here and linked out again.
"""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dayahead.files import sha256_of

_DAMAGED = ".damaged"


def store_root() -> Path:
    """Folder of the store, in the main project even from inside DVC's copies of it."""
    return Path(os.environ.get("DVC_ROOT", ".")).absolute() / ".dayahead"


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
