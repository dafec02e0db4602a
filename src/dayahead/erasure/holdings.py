"""Search for rows of users in a project: outputs, caches, records, logs of events, DVC's cache."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from dayahead.core.cache import KINDS
from dayahead.core.columns import SESSION_ID, USER_ID
from dayahead.core.files import read_json
from dayahead.erasure.tables import UnreadableTableError, rows_of, tables_in
from dayahead.live.log_file import count_events, named_in
from dayahead.windows.folder import MANIFEST
from dayahead.windows.session_ids import hashed_ids

OUTPUTS = ("data/raw", "data/windows", "results/ranks", "results/predictions", "results/attention")
"""Outputs of stages that hold ids of users or sessions; a rerun writes each of them whole."""
OTHERS = ("nights", "published", "models", "results", ".dvc/tmp")
"""Other folders that are searched, file by file."""

Table = tuple[str, Path, Path]
"""A file of a table: its place, what is removed with it, and its path."""
DVC_CACHE = "the cache of DVC"
LIVE = "live"
"""Folder of the logs of events: their rows are removed, not the files."""


@dataclass(frozen=True)
class Holding:
    """A file or folder that is removed as a whole, or a log of events."""

    place: str
    """The part of the project that contains it, for the list: data/raw, .dayahead/windows ..."""
    path: Path
    rows: int


@dataclass
class Holdings:
    """Everything that was found."""

    found: list[Holding] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    """Rows by user, in tables that name users."""
    sessions: set[str] = field(default_factory=set)
    """Ids of the users' sessions, by which tables that name none of the users are searched."""
    damaged: list[Holding] = field(default_factory=list)
    """What holds a table that cannot be searched, outside of DVC's cache."""

    def by_place(self) -> Mapping[str, Sequence[Holding]]:
        """Return the findings by place, in the order in which they were found."""
        listed: dict[str, list[Holding]] = {}
        for each in self.found:
            listed.setdefault(each.place, []).append(each)
        return listed


def find_holdings(root: Path, users: Collection[str], dvc_cache: Path, seed: int) -> Holdings:
    """Search a project for rows of users, and the other tables for rows of their sessions.

    `seed` is that of the data set's split, with which results hash the ids of sessions.

    Raises:
        DataError: a log of events is damaged.
    """
    holdings = Holdings()
    rows: Counter[tuple[str, Path]] = Counter()
    unnamed, damaged = [], set[tuple[str, Path]]()
    for table, named in _searched(_tables(root, dvc_cache), USER_ID, users, damaged):
        # Windows name the user of a session's first event, which may be before sign-in.
        if named is None or not len(named):
            unnamed.append(table)
        else:
            rows[table[:2]] += len(named)
            holdings.rows.update(named[USER_ID].to_pylist())
            if SESSION_ID in named.column_names:
                holdings.sessions.update(named[SESSION_ID].drop_null().to_pylist())
    for log in event_logs(root):
        counts, sessions = named_in(log, users)
        holdings.rows.update(counts)
        holdings.sessions |= sessions
    # Only now are all sessions of the users known.
    holdings.sessions |= _hashed(holdings.sessions, {seed, *_hash_seeds(root)})
    # Without sessions of the users there is nothing to look for.
    of_sessions = unnamed if holdings.sessions else ()
    for table, named in _searched(of_sessions, SESSION_ID, holdings.sessions, damaged):
        rows[table[:2]] += 0 if named is None else len(named)
    rows.update(
        {(LIVE, log): count_events(log, users, holdings.sessions) for log in event_logs(root)}
    )
    holdings.found = [Holding(place, unit, n) for (place, unit), n in sorted(rows.items()) if n]
    holdings.damaged = [Holding(*each, 0) for each in sorted(damaged) if not rows[each]]
    return holdings


def _hash_seeds(root: Path) -> Iterator[int]:
    """Yield the seeds with which windows of this project have been read."""
    for folder in ("data", ".dayahead"):
        for path in (root / folder).rglob(MANIFEST):
            with suppress(OSError, ValueError):
                if isinstance(seed := read_json(path).get("hash_seed"), int):
                    yield seed


def _hashed(sessions: Collection[str], seeds: Collection[int]) -> set[str]:
    ids = pa.array(sorted(sessions), pa.string())
    return {each for seed in seeds for each in hashed_ids(ids, seed).to_pylist()}


def _searched(
    tables: Iterable[Table],
    column: str,
    values: Collection[str],
    damaged: set[tuple[str, Path]],
) -> Iterator[tuple[Table, pa.Table | None]]:
    """Yield tables with their `rows_of` some values; what holds one that is damaged is added."""
    for table in tables:
        place, unit, path = table
        try:
            named = rows_of(path, column, values)
        except UnreadableTableError:
            if place != DVC_CACHE:
                damaged.add((place, unit))
        else:
            yield table, named


def event_logs(root: Path) -> list[Path]:
    """Return the logs of events that services keep in the project."""
    return sorted((root / LIVE).glob("*.sqlite"))


def _tables(root: Path, dvc_cache: Path) -> Iterator[Table]:
    """Yield each table's place, the path that is removed with it, and its own path."""
    for name in OUTPUTS:
        yield from ((name, root / name, path) for path in tables_in(root / name))
    for folder in sorted((root / "data").glob(".*")):  # left by a killed stage
        yield from ((f"data/{folder.name}", path, path) for path in tables_in(folder))
    own = [root / name for name in OUTPUTS]
    for name in OTHERS:
        for path in tables_in(root / name):
            if not any(folder in path.parents for folder in own):
                yield name, path, path
    for folder in sorted((root / ".dayahead").glob("*/")):
        place = f".dayahead/{folder.name}"
        for path in tables_in(folder):
            inside = path.relative_to(folder).parts
            is_entry = folder.name in KINDS and len(inside) > 1
            yield place, folder / inside[0] if is_entry else path, path
    yield from ((DVC_CACHE, path, path) for path in tables_in(dvc_cache))
