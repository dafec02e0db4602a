"""Counts of a push or a pull, by kind of entry."""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.core.cache import KINDS
from dayahead.sharing.manifest import Entry


@dataclass(frozen=True)
class Report:
    """Counts by kind; several threads add to them."""

    moved: Counter[str] = field(default_factory=Counter)
    """Entries sent or fetched."""
    present: Counter[str] = field(default_factory=Counter)
    """Entries that were there already."""
    n_files: Counter[str] = field(default_factory=Counter)
    """Files sent or fetched; one that several entries share counts for the first of them."""
    n_bytes: Counter[str] = field(default_factory=Counter)
    refused: dict[Entry, str] = field(default_factory=dict)
    """Entries left out, each with the reason."""
    _lock: Lock = field(default_factory=Lock)

    def add_present(self, entry: Entry) -> None:
        """Count an entry that was there already."""
        with self._lock:
            self.present[entry[0]] += 1

    def add_entry(self, entry: Entry) -> None:
        """Count an entry that was sent or fetched."""
        with self._lock:
            self.moved[entry[0]] += 1

    def add_file(self, entry: Entry, n_bytes: int) -> None:
        """Count a file sent or fetched."""
        with self._lock:
            self.n_files[entry[0]] += 1
            self.n_bytes[entry[0]] += n_bytes

    def refuse(self, entry: Entry, reason: object) -> None:
        """Record an entry that is left out."""
        with self._lock:
            self.refused[entry] = str(reason)

    def table(self, verb: str) -> str:
        """Return a table with a line per kind; `verb` is what happened, such as sent."""
        rows = [
            (
                kind,
                self.moved[kind],
                self.n_files[kind],
                self.n_bytes[kind] / 2**20,
                self.present[kind],
            )
            for kind in KINDS
            if self.moved[kind] or self.present[kind]
        ]
        all_kinds = (c.total() for c in (self.moved, self.n_files, self.n_bytes, self.present))
        moved, n_files, n_bytes, present = all_kinds
        rows.append(("all", moved, n_files, n_bytes / 2**20, present))
        head = ("kind", verb, "files", "MiB", "already there")
        return str(tabulate(rows, head, tablefmt="plain", intfmt=",", floatfmt=",.1f"))
