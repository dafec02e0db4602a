"""What the store holds, shelf by shelf, and clearing away what has been of no use lately."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


def unused_since(shelf: Shelf, second: float) -> list[Path]:
    """Entries that no run has used since that second of Unix time."""
    return [entry for entry in shelf.entries if entry.stat().st_mtime < second]


def clear(entries: list[Path]) -> None:
    """Remove entries: first out of sight, so that nobody meets half of one."""
    for entry in entries:
        if entry.is_file():
            entry.unlink(missing_ok=True)
            continue
        aside = entry.rename(entry.with_name(f".{entry.name}.cleared"))
        shutil.rmtree(aside, ignore_errors=True)


def _entries(folder: Path) -> Iterator[Path]:
    """A folder each; of the windows, which share their files, the note of each run."""
    if folder.name == "windows":
        yield from sorted(folder.glob("*/*.json"))
    elif folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.is_dir())


def _bytes_in(folder: Path) -> int:
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file():
            about = path.stat()
            sizes[about.st_ino] = about.st_size
    return sum(sizes.values())
