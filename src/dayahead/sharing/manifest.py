"""The manifest of an entry on a remote: its files with their hashes, and a hash of these."""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from dayahead.core.cache import CONTENTS, recorded_hashes
from dayahead.core.errors import DataError
from dayahead.core.fingerprints import fingerprint

Entry = tuple[str, str]
"""An entry of the cache: its kind and key."""
SUFFIXES = {".arrow", ".json", ".parquet", ".pbtxt", ".safetensors"}
"""Suffixes of files that hold only data: nothing from a remote is ever run or unpickled."""
LONGEST_NAME = 250
"""Maximum length of a file's name in its entry; most file systems allow 255 bytes per part."""
MAX_BYTES = {"windows": 64 << 20}
"""Maximum size of a manifest, by kind; a run of preprocess has three files for each window."""
MAX_BYTES_OF_OTHERS = 1 << 20


class EntryError(DataError):
    """An entry on a remote, or one to be sent there, is invalid."""


def _inside(name: str) -> str:
    """Check that a file's name is inside the entry's folder, and that of a data file."""
    path = PurePosixPath(name)
    is_plain = str(path) == name and not path.is_absolute() and name.isprintable()
    is_short = len(name) <= LONGEST_NAME and len(name.encode()) <= 2 * LONGEST_NAME
    is_data = path.suffix in SUFFIXES and name != CONTENTS
    if not (is_plain and is_short and is_data) or ".." in path.parts or "\\" in name:
        raise ValueError(f"{name[:LONGEST_NAME]!r} is no name of a file of data in the entry")
    return name


def _distinct(files: dict[str, "EntryFile"]) -> dict[str, "EntryFile"]:
    """Check that there are files, and that their paths differ on every file system."""
    if not files:
        raise ValueError("it names no file")
    # Some file systems ignore case or normalise Unicode.
    paths = Counter(unicodedata.normalize("NFC", name).casefold() for name in files)
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    if twice := [path for path, n in paths.items() if n > 1 or path in folders]:
        raise ValueError(f"{twice[0]!r} is the name of two files, or of a file and a folder")
    return files


class EntryFile(BaseModel, extra="forbid", frozen=True):
    """One file of an entry."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]


class Manifest(BaseModel, extra="forbid", frozen=True):
    """All files of an entry by name."""

    files: Annotated[
        dict[Annotated[str, AfterValidator(_inside)], EntryFile], AfterValidator(_distinct)
    ]
    fingerprint: str
    """Fingerprint of `files`."""

    @classmethod
    def of(cls, entry: Path) -> "Manifest":
        """Return the manifest of an entry of the local cache, which has just been verified.

        Raises:
            EntryError: it holds a file that `pull` would refuse.
        """
        hashes = recorded_hashes(entry)
        files = {
            name: {"sha256": sha256, "bytes": (entry / name).stat().st_size}
            for name, sha256 in hashes.items()
        }
        with _entry_errors():
            return cls.model_validate({"files": files, "fingerprint": fingerprint(files)})

    @classmethod
    def parse(cls, text: bytes) -> "Manifest":
        """Read what `text` returned.

        Raises:
            EntryError: it is damaged, or names files outside the entry.
        """
        with _entry_errors():
            manifest = cls.model_validate_json(text)
        if fingerprint(manifest.model_dump()["files"]) != manifest.fingerprint:
            raise EntryError("its manifest is damaged")
        return manifest

    def text(self) -> str:
        """Return the manifest as it is stored."""
        return self.model_dump_json(indent=2)


@contextmanager
def _entry_errors() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise EntryError(f"its manifest is not valid ({why})") from None
