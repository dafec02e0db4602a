"""What a run of `preprocess` leaves in the store, and from where a longer log goes on."""

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from dayahead.config.params import WindowConfig
from dayahead.core import columns
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.core.project import cache_root
from dayahead.core.store import Blobs, DamagedBlobError
from dayahead.core.types import Device
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.fit import looks_ahead
from dayahead.preprocess.event_log import EventLog, Piece
from dayahead.preprocess.tally import Tally

STATES_KEPT = 2
"""Of a setting: those used last."""
_CHECK = "fingerprint"
"""In a note: of all else in it."""
_PACKAGES = ("pyarrow", "pandas", "numpy", "nvtabular", "merlin-core")
_log = logging.getLogger(__name__)


def settings_key(
    dataset: DatasetConfig, window: WindowConfig, fit_windows: int, device: Device, log: EventLog
) -> str:
    """Name all that the windows' bytes depend on, but the events.

    Where a feature looks ahead these belong to it too: then no longer log can go on.
    """
    source = [sha256_of(path) for path in sorted(Path(__file__).parent.glob("*.py"))]
    given = asdict(dataset)
    value = {
        "dataset": {key: given[key] for key in ("columns", "sessions", "features", "split")},
        "window": {
            key: getattr(window, key)
            for key in ("unit", "origin", "timezone", "min_sessions", "overrun", "grace")
        },
        "fit_windows": fit_windows,
        "device": device,
        "source": [*source, sha256_of(Path(columns.__file__))],
        "packages": {name: version(name) for name in _PACKAGES},
        "log": [part.sha256 for part in log.parts] if looks_ahead(dataset.features) else None,
    }
    return fingerprint(value)[:16]


@dataclass(frozen=True, kw_only=True)
class State:
    """One finished run; files by the sha256 of their content."""

    parts: list[tuple[str, int]]
    """Of the log: sha256 and first row."""
    log_end: str
    begin: int
    """Start of the log's first session, microseconds, UTC; where the calendar begins."""
    n_written: int
    """Windows that are written or dropped for good."""
    edge: int
    """The end of the last of them."""
    without_user: int
    tally: Mapping[str, list[int]]
    """Of the windows written."""
    files: Mapping[str, str]
    """data/windows, whole, by path."""
    census: Mapping[str, str]
    """By column."""
    carried: list[str]
    """Events that the next run needs again."""
    memory: Mapping[str, list[str]]
    """What it may look up, by key."""


@dataclass(frozen=True)
class Earlier:
    """What an earlier run left, brought to where this one works."""

    state: State
    carried: tuple[Piece, ...]
    memory: Mapping[str, tuple[Path, ...]]
    census: Mapping[str, pa.Table]
    """Tables by column."""

    @property
    def tally(self) -> Tally:
        """Counts of the windows written."""
        return Tally.from_json(self.state.tally)

    def is_of(self, log: EventLog) -> bool:
        """Whether it was of this very log."""
        return len(self.state.parts) == len(log.parts) and self.state.log_end == log.end.isoformat()


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a run leaves for the next."""

    begin: int
    n_written: int
    edge: int
    without_user: int
    tally: Tally
    census: Mapping[str, Path]
    carried: Sequence[Path]
    memory: Mapping[str, Sequence[Path]]


@dataclass(frozen=True)
class States:
    """The states of one setting."""

    key: str

    def fitting(self, log: EventLog) -> list[State]:
        """Find the states that this log goes on from, the most advanced first."""
        held = Counter(part.sha256 for part in log.parts)
        fits = [state for state in self._all() if Counter(sha for sha, _ in state.parts) <= held]
        return sorted(fits, key=lambda state: (len(state.parts), state.log_end), reverse=True)

    def restored(self, state: State, log: EventLog, output: Path, scratch: Path) -> "Earlier":
        """Link a state's windows into `output`, and what goes on into `scratch`.

        Raises:
            DamagedBlobError: part of it is missing or damaged.
        """

        def here(sha256: str) -> Path:
            path = scratch / sha256
            if not path.exists():  # two buckets may have left the same, such as nothing
                self._blobs.get(sha256, path)
            return path

        with self._locked():
            try:
                os.utime(self._note(state))  # what was of use lately is kept
            except FileNotFoundError:
                raise DamagedBlobError(f"{self._note(state)}: missing") from None
            with ThreadPoolExecutor() as threads:  # every byte is looked at
                targets = [output / name for name in state.files]
                list(threads.map(self._blobs.get, state.files.values(), targets))
            shifts = _shifts(state, log)
            return Earlier(
                state,
                tuple(Piece(here(sha256), shifts) for sha256 in state.carried),
                {key: tuple(here(sha256) for sha256 in on) for key, on in state.memory.items()},
                {column: pq.read_table(here(sha256)) for column, sha256 in state.census.items()},
            )

    def keep(self, left: "Left", log: EventLog, output: Path, earlier: "Earlier | None") -> None:
        """Take a finished run into the store, and forget what is too old."""
        linked = earlier.state.files if earlier else {}

        def put(path: Path) -> str:
            inside = path.is_relative_to(output)
            known = linked.get(path.relative_to(output).as_posix()) if inside else path.name
            return self._blobs.put(path, known)

        with self._locked():
            files = sorted(path for path in output.rglob("*") if path.is_file())
            state = State(
                parts=[(part.sha256, part.first_row) for part in log.parts],
                log_end=log.end.isoformat(),
                begin=left.begin,
                n_written=left.n_written,
                edge=left.edge,
                without_user=left.without_user,
                tally=left.tally.before(left.n_written).as_json(),
                files={path.relative_to(output).as_posix(): put(path) for path in files},
                census={column: put(path) for column, path in left.census.items()},
                carried=[put(path) for path in left.carried],
                memory={key: [put(path) for path in on] for key, on in left.memory.items()},
            )
            written = self._note(state)
            write_json(written, asdict(state) | {_CHECK: fingerprint(asdict(state))})
            # Where the clock was set back the older ones seem newer.
            others = set(self._folder.glob("*.json")) - {written}
            notes = sorted(others, key=lambda path: path.stat().st_mtime_ns)
            for old in notes[: len(notes) - (STATES_KEPT - 1)]:
                old.unlink()
            self._blobs.keep_only(self._used())

    def forget(self, state: State) -> None:
        """Remove a state that is damaged."""
        self._note(state).unlink(missing_ok=True)

    def clear_unused(self) -> None:
        """Remove files that no state of any setting names any more."""
        with self._locked():
            self._blobs.keep_only(self._used())

    @property
    def _root(self) -> Path:
        return cache_root() / "windows"

    @property
    def _folder(self) -> Path:
        return self._root / self.key

    @property
    def _blobs(self) -> Blobs:
        return Blobs(self._root / "blobs")

    def _note(self, state: State) -> Path:
        name = fingerprint({"parts": state.parts, "log_end": state.log_end})[:16]
        return self._folder / f"{name}.json"

    def _all(self) -> list[State]:
        return [state for path in self._folder.glob("*.json") if (state := _read(path))]

    def _used(self) -> set[str]:
        """Content that any setting's state names."""
        used: set[str] = set()
        for state in filter(None, map(_read, self._root.glob("*/*.json"))):
            used |= {*state.files.values(), *state.census.values(), *state.carried}
            used |= {sha256 for on in state.memory.values() for sha256 in on}
        return used

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Experiments of a queue share the store: nobody clears away what another reads."""
        self._root.mkdir(parents=True, exist_ok=True)
        with FileLock(self._root / "lock"):
            yield


def _read(path: Path) -> State | None:
    """Read a note; one that is damaged is set aside, with a warning."""
    try:
        held = read_json(path)
        if held.pop(_CHECK) == fingerprint(held):
            return State(**held)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    aside = path.with_suffix(".damaged")
    path.replace(aside)
    _log.warning("preprocess: %s: damaged, set aside as %s", path, aside.name)
    return None


def _shifts(state: State, log: EventLog) -> dict[int, int]:
    """How the rows of a state are numbered now, where files have come in between."""
    now = defaultdict(list)
    for part in log.parts:
        now[part.sha256].append(part.first_row)
    moved = {first: now[sha256].pop(0) - first for sha256, first in state.parts}
    return dict(sorted({0: 0, **moved}.items()))
