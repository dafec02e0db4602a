"""A paired test of two settings on the same targets: windows are the unit, runs have seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from dayahead.core.errors import ComparisonError
from dayahead.metrics.metrics import Ranks, Values, mean, metric_names, target_metric
from dayahead.outputs.lists import LISTS, ListRow, read_lists
from dayahead.outputs.tables import WindowRanks, ranked_windows, read_ranks
from dayahead.statistics.differences import Difference, difference_test
from dayahead.statistics.intervals import MIN_WINDOWS


@dataclass(frozen=True)
class FigureComparison:
    """One figure of two settings, paired by windows."""

    name: str
    a: float
    """Mean of A over windows, equally weighted, and over its runs."""
    b: float
    test: Difference

    @classmethod
    def of(cls, name: str, values: Values, n_a: int, **others: float) -> Self:
        """Compare values [runs, windows], the first `n_a` runs being A's."""
        a, b = values[:n_a], values[n_a:]
        means = mean(a.mean(axis=0)), mean(b.mean(axis=0))
        return cls(name, *means, difference_test(a, b), **others)


@dataclass(frozen=True)
class MetricComparison(FigureComparison):
    """One metric of two settings."""

    better: int
    """Number of windows where the mean of B's runs is better."""
    worse: int
    equal: int
    targets_a: float
    """Mean of A over all targets, and over its runs."""
    targets_b: float


@dataclass(frozen=True)
class Comparison:
    """Two settings over the same sessions and targets, each with one run or several."""

    n_runs: tuple[int, int]
    """Number of runs of A and of B."""
    n_windows: int
    n_sessions: int
    n_targets: int
    metrics: tuple[MetricComparison, ...]
    outside_a: tuple[int, ...]
    """Number of targets that were not among the candidates, in each run."""
    outside_b: tuple[int, ...]
    has_equal_ranks: bool
    """Whether every target has the same rank in all runs."""
    lists: tuple[FigureComparison, ...] = ()
    """What the lists show; empty where not all runs have counted theirs. No test of which is
    better: more coverage or less popularity is no aim in itself."""

    @property
    def has_enough_windows(self) -> bool:
        """Whether there are enough windows for a test."""
        return self.n_windows >= MIN_WINDOWS

    @property
    def has_enough_runs(self) -> bool:
        """Whether both have several runs, so that the spread over seeds is known."""
        return min(self.n_runs) > 1


def compare(
    a: Sequence[Path],
    b: Sequence[Path],
    cutoffs: Sequence[int],
    windows: Sequence[str] | None = None,
    packaged: Sequence[str] = (),
) -> Comparison:
    """Compare two settings by the ranks of their runs.

    Args:
        a: folders holding ranks/<window>.parquet, and lists.csv if lists were counted, one for each
            run; the runs of one setting differ in training.seed.
        b: the same of the other setting.
        cutoffs: lengths of the lists, as in evaluation.cutoffs.
        windows: those to compare; None: all, and the same in each folder.
        packaged: metrics of other packages, as in evaluation.metrics.

    Raises:
        ComparisonError: the runs differ in windows, sessions, positions or targets.
        DataError: a folder has no ranks, or a file is damaged.
    """
    runs = {f"{side}{n}": each for side, of in (("A", a), ("B", b)) for n, each in enumerate(of, 1)}
    by_run = [*paired_ranks(runs, windows).values()]
    first, ranks = by_run[0], [[each.ranks for each in of_run.values()] for of_run in by_run]
    every = [np.concatenate(of_run) for of_run in ranks]
    outside = tuple(int(np.count_nonzero(of_run == 0)) for of_run in every)
    return Comparison(
        n_runs=(len(a), len(b)),
        n_windows=len(first),
        n_sessions=sum(each.n_sessions for each in first.values()),
        n_targets=len(every[0]),
        metrics=tuple(
            _compare_metric(name, ranks, len(a)) for name in metric_names(cutoffs, packaged)
        ),
        outside_a=outside[: len(a)],
        outside_b=outside[len(a) :],
        has_equal_ranks=all(np.array_equal(of_run, every[0]) for of_run in every[1:]),
        lists=_compare_lists([*a, *b], [*first], len(a)),
    )


def paired_ranks(
    runs: Mapping[str, Path], windows: Sequence[str] | None = None
) -> dict[str, dict[str, WindowRanks]]:
    """Read ranks by run and window, over the same targets.

    Args:
        runs: folders by the names of the runs in messages.
        windows: as `compare` takes them.

    Raises:
        ComparisonError: the runs differ in windows, sessions, positions or targets.
        DataError: a folder has no ranks, or a file is damaged.
    """
    found = {
        name: {window: read_ranks(folder, window) for window in windows or ranked_windows(folder)}
        for name, folder in runs.items()
    }
    first, *others = found
    for name in others:
        check_same_targets((first, name), found[first], found[name])
    return found


def check_same_targets(
    names: tuple[str, str], a: Mapping[str, WindowRanks], b: Mapping[str, WindowRanks]
) -> None:
    """Check that two runs, called `names` in messages, rank the same targets.

    Args:
        names: names of the runs.
        a: ranks of the first by window, in order of time.
        b: those of the second.

    Raises:
        ComparisonError: the runs differ in windows, sessions, positions or targets.
    """
    _check_windows(names, [*a], [*b])
    for what, differing in _DIFFERENCES.items():
        _check_same(names, a, b, what, differing)


def _compare_metric(name: str, ranks: Sequence[Sequence[Ranks]], n_a: int) -> MetricComparison:
    """Compare one metric, given the ranks of each run and window; the first runs are A's."""
    values = [[target_metric(name, each) for each in of_run] for of_run in ranks]
    by_window = np.array([[mean(each) for each in of_run] for of_run in values])  # [runs, windows]
    targets = [mean(np.concatenate(of_run)) for of_run in values]
    a, b = by_window[:n_a], by_window[n_a:]
    differences = b.mean(axis=0) - a.mean(axis=0)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return MetricComparison.of(
        name,
        by_window,
        n_a,
        better=better,
        worse=worse,
        equal=len(differences) - better - worse,
        targets_a=mean(targets[:n_a]),
        targets_b=mean(targets[n_a:]),
    )


def _compare_lists(
    runs: Sequence[Path], windows: Sequence[str], n_a: int
) -> tuple[FigureComparison, ...]:
    """Compare the figures of lists.csv that all runs have; none where a run has no lists."""
    tables = [_rows_of(folder, windows) for folder in runs]
    if not all(tables):
        return ()
    found = []
    for name in tables[0][0].figures:
        if all(name in rows[0].figures for rows in tables):
            values = np.array([[row.figures[name] for row in rows] for rows in tables], np.float64)
            found.append(FigureComparison.of(name, values, n_a))
    return tuple(found)


def _rows_of(folder: Path, windows: Sequence[str]) -> list[ListRow]:
    """Return the rows of these windows; none where one is missing, or the table is."""
    if not (folder / LISTS).exists():
        return []
    rows = {row.window: row for row in read_lists(folder)}
    return [rows[window] for window in windows] if {*windows} <= {*rows} else []


def _check_windows(names: tuple[str, str], a: list[str], b: list[str]) -> None:
    if a != b:
        only_a, only_b = sorted(set(a) - set(b)), sorted(set(b) - set(a))
        raise ComparisonError(
            f"the runs were evaluated on different windows: {len(a)} in {names[0]} and {len(b)} "
            f"in {names[1]}; only in {names[0]}: {_listed(only_a)}; only in {names[1]}: "
            f"{_listed(only_b)}. Run one of them again with the other's dataset, window.first and "
            f"window.last"
        )


def _check_same(
    names: tuple[str, str],
    a: Mapping[str, WindowRanks],
    b: Mapping[str, WindowRanks],
    what: str,
    differing: Callable[[WindowRanks, WindowRanks], str],
) -> None:
    differences = [
        f"{window} ({difference})"
        for window in a
        if (difference := differing(a[window], b[window]))
    ]
    if differences:
        raise ComparisonError(
            f"{names[0]} and {names[1]} were evaluated on different {what} in {len(differences)} "
            f"of {len(a)} windows: {_listed(differences)}. Run one of them again with the "
            f"other's dataset, window section, evaluation.split and evaluation.positions, over "
            f"the same data/windows"
        )


def _differing_sessions(a: WindowRanks, b: WindowRanks) -> str:
    if a.session_ids.equals(b.session_ids):
        return ""
    ids_a, ids_b = set(a.session_ids.to_pylist()), set(b.session_ids.to_pylist())
    return (
        f"{a.n_sessions} sessions against {b.n_sessions}, "
        f"{len(ids_a - ids_b)} only in the first, {len(ids_b - ids_a)} only in the second"
    )


def _differing_positions(a: WindowRanks, b: WindowRanks) -> str:
    kinds = ["last" if run.positions is None else "all" for run in (a, b)]
    return "" if kinds[0] == kinds[1] else " against ".join(kinds)


def _differing_targets(a: WindowRanks, b: WindowRanks) -> str:
    n = int(np.count_nonzero(a.targets != b.targets))
    return f"{n} of {len(a.targets)} targets" if n else ""


_DIFFERENCES: Final[dict[str, Callable[[WindowRanks, WindowRanks], str]]] = {
    "positions": _differing_positions,
    "sessions": _differing_sessions,
    "targets": _differing_targets,
}
"""Properties in which the runs must not differ; the first difference is reported."""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004
    return ", ".join(names[:5]) + more if names else "none"
