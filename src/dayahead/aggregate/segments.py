"""Metrics by segment: the groups of targets that evaluation.segments asks for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.aggregate.slices import Slicing, slices_of
from dayahead.aggregate.targets import Ints, clicks_before
from dayahead.config.params import USER
from dayahead.core.columns import N_RESERVED, ROLES, USER_ID, VALUE, WINDOW
from dayahead.core.files import write_csv
from dayahead.metrics.metrics import Ranks, Values, target_metric
from dayahead.outputs.tables import WindowRanks
from dayahead.windows.folder import Role, Window, WindowFolder

SEGMENTS: Final = "segments.csv"
N_VALUES: Final = 20
"""Number of values of a segment, those with most targets; the others are a group together."""
OTHERS: Final = "(others)"
UNKNOWN: Final = "(unknown)"
NEW, RETURNING = "new", "returning"
TARGET_TYPE: Final = "target_type"
"""The segment of the target's own type of event."""
_TITLES: Final = {USER: "Users", TARGET_TYPE: "Type of the target's event"}


class SegmentRow(NamedTuple):
    """A row of segments.csv."""

    window: str
    segment: str
    value: str
    n_targets: int
    metrics: Sequence[float]
    """Means over the targets, in the order of the run's metrics."""


@dataclass
class Segments:
    """Sums over the targets of each window by segment and value, added in order of time.

    Raises:
        ConfigError: a name is neither `user` nor a categorical feature of the windows.
    """

    folder: WindowFolder
    given: Sequence[str]
    """evaluation.segments; the types of the targets are a segment wherever events have types."""
    metrics: Sequence[str]
    main: str
    """The one of them that tables of groups show."""
    windows: list[str] = field(default_factory=list)
    _sums: dict[str, list[dict[str, Values]]] = field(init=False)
    """By name and window: [1 + metrics + others] number of targets and sums, by value."""
    names: Sequence[str] = field(init=False)
    _users: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Find the columns of the windows."""
        self._columns = {
            name: self.folder.categorical_column(name, "evaluation.segments")
            for name in self.given
            if name != USER
        }
        event_type = self.folder.statistics.event_type
        if event_type is not None:
            self._columns[TARGET_TYPE] = event_type
        self.names = [*self.given, *([TARGET_TYPE] * (event_type is not None))]
        self._sums = {name: [] for name in self.names}

    def add(self, window: Window, split: Role, ranks: WindowRanks, others: Sequence[Ranks]) -> None:
        """Add the targets of an evaluated window, and the ranks that others give them."""
        values = [target_metric(name, ranks.ranks) for name in self.metrics]
        values += [target_metric(self.main, each) for each in others]
        self.windows.append(window.name)
        columns = [*dict.fromkeys(self._columns.values()), *([USER_ID] * (USER in self.names))]
        clicks = clicks_before(self.folder, window, split, ranks, columns)
        for name in self.names:
            if name == USER:
                labels, codes = self._users_of(clicks.table[USER_ID], clicks.rows)
            else:
                column = self._columns[name]
                at = clicks.at + (name == TARGET_TYPE)
                found = pc.list_flatten(clicks.table[column]).to_numpy()[at]
                labels, codes = self._values_of(column, found)
            sums = [np.bincount(codes, each, len(labels)) for each in (None, *values)]
            table = np.stack(sums, axis=1).astype(np.float64)
            self._sums[name].append(dict(zip(labels, table, strict=True)))

    def see(self, window: Window) -> None:
        """Remember the users of a window, whose later sessions are those of returning users."""
        if USER in self.names:
            for role in ROLES:
                ids = self.folder.read(window, role, [USER_ID])[USER_ID].drop_null()
                self._users.update(ids.unique().to_pylist())

    def _users_of(self, ids: pa.ChunkedArray, rows: Ints) -> tuple[list[str], Ints]:
        kinds = [
            UNKNOWN if each is None else RETURNING if each in self._users else NEW
            for each in ids.to_pylist()
        ]
        labels, codes = np.unique(np.array(kinds)[rows], return_inverse=True)
        return labels.tolist(), codes

    def _values_of(self, column: str, found: Ints) -> tuple[list[str], Ints]:
        # 0 and 1 are no values.
        indices, codes = np.unique(np.maximum(found, N_RESERVED - 1), return_inverse=True)
        raw = self.folder.vocabulary(column)[VALUE]
        labels = [
            str(raw[i - N_RESERVED]) if i >= N_RESERVED else UNKNOWN for i in indices.tolist()
        ]
        return labels, codes

    def _grouped(self, name: str) -> list[dict[str, Values]]:
        """Return the sums by value, of all but the most frequent values together."""
        totals: Counter[str] = Counter()
        for sums in self._sums[name]:
            totals.update({value: int(each[0]) for value, each in sums.items()})
        ordered = sorted(totals, key=lambda value: (-totals[value], value))
        kept = ordered if len(ordered) <= N_VALUES + 1 else ordered[:N_VALUES]
        found = []
        for sums in self._sums[name]:
            groups = {value: sums[value] for value in kept if value in sums}
            rest = [each for value, each in sums.items() if value not in kept]
            groups |= {OTHERS: np.sum(rest, axis=0)} if rest else {}
            found.append(groups)
        return found

    def rows(self) -> Iterator[SegmentRow]:
        """Yield the rows of segments.csv: segment by segment, window by window."""
        for name in self.names:
            for window, groups in zip(self.windows, self._grouped(name), strict=True):
                for value, (n, *sums) in groups.items():
                    means = [each / n for each in sums[: len(self.metrics)]]
                    yield SegmentRow(window, name, value, int(n), means)

    def slicings(self, others: Sequence[str]) -> list[Slicing]:
        """Return the tables of the report, beside `others`, in the order of their ranks."""
        at = [0, 1 + [*self.metrics].index(self.main)]
        at += range(1 + len(self.metrics), 1 + len(self.metrics) + len(others))
        found = []
        for name in self.names:
            windows = self._grouped(name)
            labels = [*dict.fromkeys(value for groups in windows for value in groups)]
            labels.sort(key=lambda value: -sum(g[value][0] for g in windows if value in g))
            none = np.zeros(len(at))
            sums = [
                np.stack([groups[each][at] if each in groups else none for each in labels])
                for groups in windows
            ]
            title = _TITLES.get(name, f"{name} of the click before the target")
            found.append(Slicing(title, list(slices_of(labels, np.stack(sums), others))))
        return found


def write_segments(results: Path, metrics: Sequence[str], rows: Sequence[SegmentRow]) -> None:
    """Write segments.csv; floats read back as the same floats."""
    head = (WINDOW, "segment", "value", "n_targets", *metrics)
    table = [(*row[:-1], *row.metrics) for row in rows]
    write_csv(results / SEGMENTS, [head, *table])
