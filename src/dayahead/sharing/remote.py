"""A folder of cache entries on a DVC remote, accessed with DVC's configuration of the remote.

    dayahead/cache/<kind>/<key>.json    manifest: the files of an entry, written after them
    dayahead/cache/files/<sha256>       content of a file; entries share it

`dvc gc -c` removes from `files/md5` of the remote only, so it leaves these.
"""

import errno
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from dvc.config import NoRemoteError, RemoteNotFoundError
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo
from dvc_objects.fs.base import FileSystem, ObjectFileSystem
from dvc_objects.fs.errors import RemoteMissingDepsError
from dvc_objects.fs.local import LocalFileSystem

from dayahead.core.errors import ConfigError, DayaheadError, first_line
from dayahead.core.redaction import public_url
from dayahead.download.transfer import describe_error
from dayahead.sharing.bounded import copy_file, download_file
from dayahead.sharing.manifest import (
    MAX_BYTES,
    MAX_BYTES_OF_OTHERS,
    Entry,
    EntryError,
    EntryFile,
    Manifest,
)

PREFIX = ("dayahead", "cache")
FILES = "files"
LARGE = 64 << 20
"""Files of more bytes have their size checked before anything is fetched."""
_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of this machine's disk, even if a remote operation raises them."""


class RemoteError(DayaheadError):
    """A remote cannot be reached, read or written."""


@dataclass(frozen=True)
class Remote:
    """The cache's folder on a remote."""

    name: str
    address: str
    """Address for messages, without credentials."""
    fs: FileSystem
    folder: str

    @property
    def shown(self) -> str:
        """Name and address for messages."""
        return f"remote {self.name} ({self.address})"

    @cached_property
    def names(self) -> set[tuple[str, str]]:
        """All files, as (folder, name), listed once at first use."""
        with self._wrap_errors("listed"):
            found = [self.fs.parts(path) for path in self.fs.find(self.folder)]
        return {(parts[-2], parts[-1]) for parts in found if len(parts) > 1}

    def __contains__(self, entry: Entry) -> bool:
        """Whether there is a manifest of an entry."""
        kind, key = entry
        return (kind, f"{key}.json") in self.names

    def manifest(self, entry: Entry) -> Manifest:
        """Read the manifest of an entry that is there.

        Raises:
            EntryError: it is too large, damaged, or files that it names are missing.
        """
        limit = MAX_BYTES.get(entry[0], MAX_BYTES_OF_OTHERS)
        with TemporaryDirectory(prefix="dayahead-") as scratch:
            path = Path(scratch) / "manifest.json"
            try:
                self._get(self._manifest_path(entry), path, limit)
            except EntryError as error:
                raise EntryError(f"its manifest {error}") from None
            manifest = Manifest.parse(path.read_bytes())
        files = manifest.files.items()
        missing = [name for name, file in files if (FILES, file.sha256) not in self.names]
        if missing:
            raise EntryError(f"{len(missing)} of its files are missing there, first {missing[0]}")
        for name, file in files:
            if file.bytes > LARGE:  # else a false size could make the disk seem too small
                self._check_size(name, file)
        return manifest

    def _check_size(self, name: str, file: EntryFile) -> None:
        with self._wrap_errors("read"):
            found = self.fs.info(self._file_path(file.sha256)).get("size")
        if found != file.bytes:
            raise EntryError(f"{name} is damaged there: it has {found} bytes, not {file.bytes}")

    def fetch(self, sha256: str, target: Path, n_bytes: int) -> None:
        """Copy the content with this hash, which has `n_bytes`, to a new file of this machine.

        Its hash is not verified.

        Raises:
            EntryError: it has more bytes, or it is no file or cannot be read.
        """
        self._get(self._file_path(sha256), target, n_bytes)

    def _get(self, path: str, target: Path, limit: int) -> None:
        """Copy a file of at most `limit` bytes to this machine, without reading more than that."""
        with self._wrap_errors("read"):
            if isinstance(self.fs, LocalFileSystem):
                copy_file(Path(path), target, limit)
            else:
                download_file(self.fs, path, target, limit)

    def send_file(self, source: Path, sha256: str) -> None:
        """Store a file under its hash."""
        self._put(source, self._file_path(sha256))

    def send_manifest(self, source: Path, entry: Entry) -> None:
        """Store the manifest of an entry whose files are there."""
        self._put(source, self._manifest_path(entry))

    def _put(self, source: Path, path: str) -> None:
        """Copy a file to the remote, where it appears whole or not at all.

        An object store does that by itself; elsewhere a temporary file is renamed.
        """
        with self._wrap_errors("written"):
            if isinstance(self.fs, ObjectFileSystem):
                self.fs.put_file(str(source), path)
                return
            folder = self.fs.parent(path)
            self.fs.makedirs(folder)
            temporary = self.fs.join(folder, f".{uuid.uuid4().hex}")
            try:
                self.fs.put_file(str(source), temporary)
                self.fs.move(temporary, path)
            except BaseException:
                with suppress(Exception):
                    self.fs.remove(temporary)
                raise

    def _manifest_path(self, entry: Entry) -> str:
        kind, key = entry
        return str(self.fs.join(self.folder, kind, f"{key}.json"))

    def _file_path(self, sha256: str) -> str:
        return str(self.fs.join(self.folder, FILES, sha256))

    @contextmanager
    def _wrap_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except EntryError:
            raise
        except Exception as error:  # every file system raises its own kinds
            if isinstance(error, OSError) and error.errno in _LOCAL:
                raise
            raise RemoteError(
                f"{self.shown}: cannot be {what}: {describe_error(error)}. Check its address, its "
                f"credentials and the network; `dvc push` and `dvc pull` use the same"
            ) from None


def open_remote(root: Path, name: str | None = None) -> Remote:
    """Open a remote of the project in `root`, by default that of `dvc remote default`.

    Raises:
        ConfigError: there is no such remote, or it is of a kind that cannot hold a cache.
    """
    try:
        repo = Repo(str(root))
        name = name or repo.config["core"].get("remote")
        found = repo.cloud.get_remote(name)
    except NotDvcRepoError:
        raise ConfigError(f"{root}: not a DVC project; run this in a clone of one") from None
    except (NoRemoteError, RemoteNotFoundError):
        known = ", ".join(sorted(repo.config["remote"]))
        missing = f"remote {name!r}" if name else "default remote"
        cure = f"name one of {known}" if known else "add one: dvc remote add -d NAME URL"
        raise ConfigError(f"there is no {missing} in .dvc/config; {cure}") from None
    except (ImportError, RemoteMissingDepsError) as error:
        lacking = " ".join(getattr(error, "missing_deps", ()))
        raise ConfigError(
            f"remote {name}: {first_line(error)} {lacking}".rstrip() + "; install it with pip"
        ) from None
    except DvcException as error:
        raise ConfigError(f".dvc/config: {first_line(error)}") from None
    if found.worktree or not found.fs.CAN_TRAVERSE:
        reason = "a worktree remote" if found.worktree else f"{found.fs.protocol} lists no files"
        raise ConfigError(
            f"remote {found.name}: cannot hold a cache ({reason}); use S3, SSH, another object "
            f"store or a folder"
        )
    address = public_url(repo.config["remote"][found.name]["url"])
    return Remote(found.name, address, found.fs, found.fs.join(found.path, *PREFIX))
