"""What the store holds, shelf by shelf, and clearing away what has been of no use lately."""

import shutil
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

SHELVES = {
    "downloads": "files fetched",
    "parts": "files converted",
    "windows": "runs of preprocess",
    "fits": "models after a window",
    "measures": "windows measured",
}


@dataclass(frozen=True)
class Shelf:
    """One kind of finished work."""

    kind: str
    entries: tuple[Path, ...]
    n_bytes: int
    """On the disk; what several entries share counts once."""

    @property
    def told(self) -> str:
        """A line about it."""
        return (
            f"{self.kind:10} {len(self.entries):6,} {SHELVES[self.kind]:22} "
            f"{self.n_bytes / 2**20:10,.1f} MiB"
        )


def shelves(root: Path) -> list[Shelf]:
    """Look through the store."""
    return [Shelf(kind, tuple(_entries(root / kind)), _bytes_in(root / kind)) for kind in SHELVES]


def clear(root: Path, second: float) -> int:
    """Remove entries that no run has used since that second of Unix time; how many.

    One that a run is at work in stays.
    """
    n_cleared = 0
    for kind in SHELVES:
        if not (root / kind).is_dir():
            continue
        with FileLock(root / kind / "lock"):
            for entry in [*_entries(root / kind), *(root / kind).glob("blobs/*/*.damaged")]:
                if entry.stat().st_mtime < second:
                    n_cleared += _is_removed(entry)
    return n_cleared


def _is_removed(entry: Path) -> bool:
    """Remove it, unless a run holds its own lock, as downloads and parts have."""
    own = Path(f"{entry}.lock")
    try:
        with FileLock(own, blocking=False) if own.exists() else nullcontext():
            if entry.is_file():
                entry.unlink()
            else:
                shutil.rmtree(entry)
    except Timeout:
        return False
    return True


def _entries(folder: Path) -> Iterator[Path]:
    """A folder each; of the windows, which share their files, the note of each run."""
    if folder.name == "windows":
        yield from sorted(folder.glob("*/*.json"))
    elif folder.is_dir():
        whole = (path for path in folder.iterdir() if not path.name.startswith("."))
        yield from sorted(path for path in whole if path.is_dir())


def _bytes_in(folder: Path) -> int:
    sizes = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a run may be at work
            about = path.stat()
            sizes[about.st_ino] = about.st_blocks * 512  # files in the making have holes
    return sum(sizes.values())
