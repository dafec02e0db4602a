"""A table of results: rows by metrics, averaged over windows (AOD), with tests between rows."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from dayahead.comparison.rows import NamedRuns, Names, Row, rows_of
from dayahead.config.metric_names import installed_metrics
from dayahead.config.params import EvaluationConfig
from dayahead.core.errors import ComparisonError
from dayahead.core.plugins import plugins
from dayahead.core.suggestions import did_you_mean
from dayahead.metrics.metrics import Values, mean, metric_names, target_metric
from dayahead.outputs.tables import WindowRanks
from dayahead.statistics.differences import difference_test
from dayahead.statistics.intervals import Interval, holm, runs_interval
from dayahead.statistics.paired_tests import paired_ranks

LEVEL: Final = 0.05
MAX_CUTOFF: Final = 100_000


@dataclass(frozen=True)
class Cell:
    """One metric of one row."""

    aod: float
    """Mean over windows, equally weighted, and over runs."""
    ci95: Interval | None
    """None for fewer than 5 windows."""
    p: float | None = None
    """Adjusted p-value of the difference from the row that rows are compared with; None for this
    row, for fewer than 5 windows, or where one of both has a single run."""
    is_best: bool = False


@dataclass(frozen=True)
class TableRow:
    """One setting."""

    name: str
    runs: Sequence[str]
    cells: Sequence[Cell]
    """One for each metric."""


@dataclass(frozen=True)
class ResultTable:
    """Settings by metrics, over the same targets."""

    metrics: Sequence[str]
    rows: Sequence[TableRow]
    baseline: str | None
    """Row that all others are compared with; None: the best one of each metric."""
    level: float
    """Level of the tests."""
    windows: Sequence[str]
    """In order of time."""
    n_sessions: int
    n_targets: int


def result_table(
    runs: Sequence[NamedRuns],
    metrics: Sequence[str] | EvaluationConfig,
    baseline: str | None = None,
    level: float = LEVEL,
    names: Names = "runs",
) -> ResultTable:
    """Compute the table of some runs.

    Args:
        runs: as `rows_of` takes them.
        metrics: such as ndcg_at_20; of any cutoff, for they are computed from the ranks. Or a
            section: its metrics and those of the runs, at the cutoffs of the runs, or else its own.
        baseline: name of a row; None: the best of each metric.
        level: of the tests.
        names: what rows without a name are called, as `rows_of` takes it.

    Raises:
        ComparisonError: as `rows_of`; the runs differ in windows, sessions or targets, or there is
            no row `baseline`, or a metric is unknown.
        DataError: a file is damaged.
    """
    if not isinstance(metrics, EvaluationConfig):
        _check_metrics(metrics)
    with tempfile.TemporaryDirectory() as scratch:
        rows = rows_of(runs, Path(scratch), names)
        _check_baseline(baseline, [row.name for row in rows])
        ranks = paired_ranks({n: run.folder for row in rows for n, run in row.runs.items()})
        first = next(iter(ranks.values()))
        if isinstance(metrics, EvaluationConfig):
            metrics = _recorded_metrics(rows, metrics)
        values = {
            metric: [_values(row, ranks, metric) for row in rows]
            for metric in dict.fromkeys(metrics)
        }
    index = None if baseline is None else [row.name for row in rows].index(baseline)
    columns = [_column(of_rows, index) for of_rows in values.values()]
    return ResultTable(
        metrics=[*values],
        rows=[
            TableRow(row.name, [*row.runs], cells)
            for row, *cells in zip(rows, *columns, strict=True)
        ],
        baseline=baseline,
        level=level,
        windows=[*first],
        n_sessions=sum(each.n_sessions for each in first.values()),
        n_targets=sum(len(each.ranks) for each in first.values()),
    )


def _recorded_metrics(rows: Sequence[Row], section: EvaluationConfig) -> list[str]:
    """Return metrics at the cutoffs that runs recorded, or else at those of the section."""
    found = [run.settings for row in rows for run in row.runs.values()]
    cutoffs = {each for known in found if known for each in known.get("evaluation.cutoffs", ())}
    packaged = installed_metrics(found)
    return metric_names(
        [*(cutoffs or section.cutoffs)], dict.fromkeys([*section.metrics, *packaged])
    )


def _check_metrics(metrics: Sequence[str]) -> None:
    kinds = [name.rpartition("_at_")[0] for name in metric_names([1], plugins("metric"))]
    for name in metrics:
        kind, _, cutoff = name.rpartition("_at_")
        is_number = cutoff.isascii() and cutoff.isdigit() and len(cutoff) < len(str(MAX_CUTOFF))
        if kind not in kinds or not is_number or int(cutoff) == 0:
            expected = ", ".join(f"{each}_at_20" for each in kinds)
            raise ComparisonError(
                f"--metrics {name}: no such metric; expected {expected}, or another cutoff"
            )


def _check_baseline(baseline: str | None, rows: Sequence[str]) -> None:
    if baseline is not None and baseline not in rows:
        suggestion = did_you_mean(baseline, rows)
        raise ComparisonError(
            f"--baseline {baseline}: no row has this name; "
            f"{suggestion or 'expected one of ' + ', '.join(rows)}"
        )


def _values(row: Row, ranks: Mapping[str, Mapping[str, WindowRanks]], metric: str) -> Values:
    """Return a metric [runs, windows] of a row."""
    return np.array(
        [
            [mean(target_metric(metric, each.ranks)) for each in ranks[run].values()]
            for run in row.runs
        ]
    )


def _column(rows: Sequence[Values], baseline: int | None) -> list[Cell]:
    """Return the cells of one metric, given its values [runs, windows] in each row.

    Without a baseline the best row is known only from the results, so that p-values are adjusted
    for all pairs of rows, not only for those with the best one.
    """
    aods = [mean(values.mean(axis=0)) for values in rows]
    reference = aods.index(max(aods)) if baseline is None else baseline
    found = {
        pair: difference_test(rows[pair[0]], rows[pair[1]]).p
        for pair in combinations(range(len(rows)), 2)
        if baseline is None or baseline in pair
    }
    known = {pair: p for pair, p in found.items() if p is not None}
    adjusted = dict(zip(known, holm([*known.values()]), strict=True))
    of_row = {sum(pair) - reference: p for pair, p in adjusted.items() if reference in pair}
    return [
        Cell(aod, runs_interval(values), of_row.get(number), is_best=aod == max(aods))
        for number, (aod, values) in enumerate(zip(aods, rows, strict=True))
    ]
