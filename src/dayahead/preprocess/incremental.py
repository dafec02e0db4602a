"""Finished runs in the cache, and the choice of the one from which a longer log continues.

A run is a folder, and so is its entry in the cache; files that runs share are hard links.

    windows/        data/windows
    carry_over/     events that a longer log needs again
    lookups/        by key (user_id, session_id): tables in which a longer log looks up the past
    value_counts/   of every value of a categorical column, also of those still too rare
    items.parquet   rows of the table of items that the windows know
    texts/          encoders of the texts of items
    state.json      RunState
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from dayahead.config.windows import WindowConfig
from dayahead.core.cache import Cache, UnreadableEntryError, link_tree, reading_entry
from dayahead.core.files import read_json
from dayahead.core.fingerprints import fingerprint, package_version, source_fingerprint
from dayahead.core.project import cache_root
from dayahead.dataset.manifest import RawManifest
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.time import microseconds
from dayahead.features.workflow import looks_ahead
from dayahead.windows.folder import MANIFEST, STATISTICS
from dayahead.windows.metadata import Statistics, WindowsManifest, read_metadata

ROOMS = ("config", "core", "dataset", "features", "preprocess", "windows")
"""Rooms whose source determines the windows."""
PACKAGES = (
    *("dask", "distributed", "merlin-core", "numpy", "nvtabular", "pandas"),
    *("pyarrow", "scikit-learn", "scipy"),
    # tzdata has the rules of time zones where the system has none; the others write schema.pbtxt
    # for Merlin.
    *("tzdata", "betterproto", "protobuf", "tensorflow-metadata"),
)
WINDOW_SETTINGS = ("unit", "length", "origin", "timezone", "min_sessions", "overrun", "grace")
"""Settings that shape the windows; the others only select which windows are trained on."""
READ_BY_DOWNLOAD = ("source", "time")
"""Settings of `items` that only say how its files are read."""
KEPT_RUNS = 2
"""Number of runs with the same settings that are kept: those used last."""

WINDOWS, CARRY_OVER, LOOKUPS, VALUE_COUNTS = "windows", "carry_over", "lookups", "value_counts"
KNOWN_ITEMS, TEXTS = "items.parquet", "texts"
_EVER = (-(2**62), 2**62)
"""Span of a log without strays."""
STATE = "state.json"
STRAYS = "strays.parquet"
"""In CARRY_OVER: events outside the log's span."""


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A finished run in numbers; by default, of no events."""

    parts: Sequence[tuple[str, int]] = ()
    """Parts of the log: sha256 and first row of each."""
    log_end: str = ""
    begin: int = 0
    """Start of the calendar, microseconds, UTC."""
    end: int = 0
    """End of the last window written."""
    n_written: int = 0
    """Windows that are written or dropped for good."""
    without_user: int = 0
    span: tuple[int, int] | None = None
    """See `RawManifest.span`."""
    counts: Mapping[str, Sequence[int]] | None = None
    """Counts by window written: see `preprocess.sessions.STEPS`."""
    items: Sequence[str] = ()
    """sha256 of the parts of the table of items."""
    examples: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Start and id of the first session with each defect: see `preprocess.defects`."""

    def positions_in(self, log: RawManifest) -> list[int] | None:
        """Find this run's parts in a log, in the same order; None if it lacks any.

        Other parts may be between them. The order matters where events have equal times.
        """
        # One iterator: each part is looked for after the one before, so the order must be equal.
        parts = iter(enumerate(log.parts))
        try:
            return [next(n for n, part in parts if part.sha256 == sha) for sha, _ in self.parts]
        except StopIteration:
            return None

    def has_same_strays(self, log: RawManifest) -> bool:
        """Return whether the log may continue this run, by what both take for strays.

        Early strays must be the same. Late ones may have become events, as the log has reached
        them, but what this run has taken for an event must still be one.
        """
        taken = [log.parts[n] for n in self.positions_in(log) or () if log.parts[n].first_event]
        if not taken:
            return True
        earliest = min(_instant(part.first_event) for part in taken)
        latest = max(_instant(part.last_event) for part in taken)
        (begin, end), (known_begin, known_end) = log.span or _EVER, self.span or _EVER
        is_early_alike = begin == known_begin or earliest >= max(begin, known_begin)
        return is_early_alike and (end >= known_end or latest < end)

    def row_shifts(self, log: RawManifest) -> dict[int, int]:
        """Return what a log adds to this run's row numbers: see `Chunk.row_shifts`."""
        positions = self.positions_in(log) or ()
        moved = {
            first_row: log.parts[position].first_row - first_row
            for (_, first_row), position in zip(self.parts, positions, strict=True)
        }
        return dict(sorted({0: 0, **moved}.items()))


class FinishedRuns:
    """Finished runs of the same settings, as entries of the cache."""

    def __init__(self, dataset: DatasetConfig, window: WindowConfig, fit_windows: int) -> None:
        given = asdict(dataset)
        value = {
            "dataset": {key: given[key] for key in ("columns", "sessions", "features", "split")},
            "window": {key: getattr(window, key) for key in WINDOW_SETTINGS},
            "fit_windows": fit_windows,
            "source": source_fingerprint(*ROOMS),
            "packages": {name: package_version(name) for name in PACKAGES},
        }
        if dataset.items is not None:
            value["items"] = {k: v for k, v in given["items"].items() if k not in READ_BY_DOWNLOAD}
        self._items_are_timed = dataset.items is not None and dataset.items.time is not None
        self.settings = fingerprint(value)[:16]
        self.looks_ahead = looks_ahead(dataset.all_features)
        """Whether no longer log can continue: later windows change numbers in earlier ones."""
        self._cache = Cache(cache_root() / "windows")

    def key(self, log: RawManifest) -> str:
        """Return the key of the run over a log."""
        parts = [part.sha256 for part in log.parts]
        value = {"parts": parts, "end": log.log_end.isoformat()}
        value |= {"span": list(map(str, log.span))} if log.span else {}
        value |= {"items": items_of(log)} if log.items else {}
        return f"{self.settings}-{fingerprint(value)[:16]}"

    def candidates(self, log: RawManifest) -> list[str]:
        """Return keys of the runs that this log can continue from, the longest first."""
        found = {}
        for key in self._cache.keys(f"{self.settings}-"):
            try:
                state, end = _read_run(self._cache.folder / key)
            except UnreadableEntryError:
                self._cache.get(key, _read_run)  # sets it aside
                continue
            fits = end <= log.log_end and state.positions_in(log) is not None
            fits &= state.has_same_strays(log)
            # Without times, every row of the table of items holds from the first window on.
            fits &= self._items_are_timed or list(state.items) == items_of(log)
            if key == self.key(log) or (fits and not self.looks_ahead):
                found[key] = (len(state.parts), end)
        return sorted(found, key=lambda key: found[key], reverse=True)

    def restore(self, key: str, run: Path) -> RunState | None:
        """Link a finished run into a folder; None if the entry is damaged or gone."""

        def link(entry: Path) -> RunState:
            state, _ = _read_run(entry)
            link_tree(entry, run)
            return state

        return self._cache.get(key, link)

    def save(self, run: Path, log: RawManifest) -> None:
        """Link a finished run into the cache; of the other runs, only the one used last stays."""
        new = self.key(log)
        self._cache.put(new, lambda entry: link_tree(run, entry))
        # `new` is excluded by name: if the clock was set back, others would seem newer.
        others = [key for key in self._cache.keys(f"{self.settings}-") if key != new]
        self._cache.remove(others[KEPT_RUNS - 1 :])


def items_of(log: RawManifest) -> list[str]:
    """Return the sha256 of each part of the table of items."""
    return [part.sha256 for part in log.items.parts] if log.items else []


def _instant(event: str) -> int:
    return microseconds(datetime.fromisoformat(event))


def _read_run(entry: Path) -> tuple[RunState, datetime]:
    """Return a finished run in numbers, and the end of its log.

    Raises:
        UnreadableEntryError: they, or the metadata of its windows, cannot be read.
    """
    with reading_entry():
        read_metadata(WindowsManifest, entry / WINDOWS / MANIFEST)
        read_metadata(Statistics, entry / WINDOWS / STATISTICS)
        state = read_state(entry)
        return state, datetime.fromisoformat(state.log_end)


def read_state(run: Path) -> RunState:
    """Read state.json of a run's folder."""
    return TypeAdapter(RunState).validate_python(read_json(run / STATE))
