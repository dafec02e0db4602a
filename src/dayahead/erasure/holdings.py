"""Search for rows of users in a project: outputs, caches, records and DVC's cache."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dayahead.core.cache import KINDS
from dayahead.core.columns import SESSION_ID, USER_ID
from dayahead.erasure.tables import rows_of, tables_in

OUTPUTS = ("data/raw", "data/windows", "results/ranks", "results/predictions", "results/attention")
"""Outputs of stages that hold ids of users or sessions; a rerun writes each of them whole."""
OTHERS = ("nights", "published", "models", "results", ".dvc/tmp")
"""Other folders that are searched, file by file."""


@dataclass(frozen=True)
class Holding:
    """A file or folder that is removed as a whole."""

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
    """Ids of the users' sessions, by which tables without users are searched."""

    def by_place(self) -> Mapping[str, Sequence[Holding]]:
        """Return the findings by place, in the order in which they were found."""
        listed: dict[str, list[Holding]] = {}
        for each in self.found:
            listed.setdefault(each.place, []).append(each)
        return listed


def find_holdings(root: Path, users: Collection[str], dvc_cache: Path) -> Holdings:
    """Search a project for rows of users, and for rows of their sessions that name no user."""
    holdings = Holdings()
    rows: Counter[tuple[str, Path]] = Counter()
    unnamed = []
    for place, unit, path in _tables(root, dvc_cache):
        if (named := rows_of(path, USER_ID, users)) is None:
            unnamed.append((place, unit, path))
        elif len(named):
            rows[place, unit] += len(named)
            holdings.rows.update(named[USER_ID].to_pylist())
            if SESSION_ID in named.column_names:
                holdings.sessions.update(named[SESSION_ID].drop_null().to_pylist())
    # Only now are all sessions of the users known.
    for place, unit, path in unnamed if holdings.sessions else ():
        of_sessions = rows_of(path, SESSION_ID, holdings.sessions)
        if of_sessions is not None and len(of_sessions):
            rows[place, unit] += len(of_sessions)
    holdings.found = [Holding(place, unit, n) for (place, unit), n in sorted(rows.items())]
    return holdings


def _tables(root: Path, dvc_cache: Path) -> Iterator[tuple[str, Path, Path]]:
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
    yield from (("the cache of DVC", path, path) for path in tables_in(dvc_cache))
