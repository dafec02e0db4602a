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

    def add(self, counter: Counter[str], entry: Entry, n: int = 1) -> None:
        """Add to one of the counters."""
        with self._lock:
            counter[entry[0]] += n

    def refuse(self, entry: Entry, reason: object) -> None:
        """Record an entry that is left out."""
        with self._lock:
            self.refused[entry] = str(reason)

    def table(self, verb: str) -> str:
        """Return a table with a line per kind; `verb` is what happened, such as sent."""
        kinds = [kind for kind in KINDS if self.moved[kind] or self.present[kind]]
        moved, n_files, n_bytes, present = (
            [*(counter[kind] for kind in kinds), counter.total()]
            for counter in (self.moved, self.n_files, self.n_bytes, self.present)
        )
        mib = [each / 2**20 for each in n_bytes]
        columns = {"kind": [*kinds, "all"], verb: moved, "files": n_files, "MiB": mib}
        columns["already there"] = present
        return str(tabulate(columns, "keys", tablefmt="plain", intfmt=",", floatfmt=",.1f"))
