"""Paired tests of two runs over the same targets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, ttest_rel

from dayahead.aggregate.averaging import Interval, bootstrap_interval
from dayahead.core.errors import ComparisonError
from dayahead.metrics.metrics import Ranks, Values, mean, metric_names, target_metric
from dayahead.metrics.tables import WindowRanks, ranked_windows, read_ranks


@dataclass(frozen=True)
class PairedTest:
    """Test of B against A on the same units: windows or targets."""

    a: float
    """Mean of A over the units."""
    b: float
    difference: float
    """Mean of B - A."""
    better: int
    """Units where B is better."""
    worse: int
    equal: int
    p_t: float | None
    """Paired t-test, two-sided; None for a single unit."""
    p_sign: float
    """Exact sign test, two-sided, over the units that are not equal."""


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two runs."""

    name: str
    windows: PairedTest
    """Each window counts once, so the means are averages over days."""
    ci95: Interval | None
    """Percentile bootstrap over windows of B - A; None under 5 windows."""
    targets: PairedTest
    """Each target counts once: one per session, or all of its items but the first."""


@dataclass(frozen=True)
class Comparison:
    """Two runs over the same sessions and targets."""

    n_windows: int
    n_sessions: int
    n_targets: int
    metrics: tuple[MetricComparison, ...]
    outside_a: int
    """Targets that were not among the candidates."""
    outside_b: int
    has_equal_ranks: bool
    """Whether every target has the same rank in both."""


def compare(a: Path, b: Path, cutoffs: Sequence[int]) -> Comparison:
    """Compare two results folders by their ranks.

    Args:
        a: folder holding ranks/<window>.parquet.
        b: the same of the other run.
        cutoffs: lengths of the lists, as in evaluation.cutoffs.

    Raises:
        ComparisonError: the runs differ in windows, sessions, positions or targets.
        DataError: a folder has no ranks, or a file is damaged.
    """
    windows = _common_windows(ranked_windows(a), ranked_windows(b))
    pairs = [(read_ranks(a, window), read_ranks(b, window)) for window in windows]
    _check_same(windows, pairs, "positions", _differing_positions)
    _check_same(windows, pairs, "sessions", _differing_sessions)
    _check_same(windows, pairs, "targets", _differing_targets)
    ranks_a = [of_a.ranks for of_a, _ in pairs]
    ranks_b = [of_b.ranks for _, of_b in pairs]
    every_a, every_b = np.concatenate(ranks_a), np.concatenate(ranks_b)
    return Comparison(
        n_windows=len(windows),
        n_sessions=sum(of_a.n_sessions for of_a, _ in pairs),
        n_targets=len(every_a),
        metrics=tuple(_compare_metric(name, ranks_a, ranks_b) for name in metric_names(cutoffs)),
        outside_a=int(np.count_nonzero(every_a == 0)),
        outside_b=int(np.count_nonzero(every_b == 0)),
        has_equal_ranks=bool(np.array_equal(every_a, every_b)),
    )


def paired_test(a: Values, b: Values) -> PairedTest:
    """Test whether B differs from A, given the values of both for the same units in one order."""
    differences = b - a
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return PairedTest(
        a=mean(a),
        b=mean(b),
        difference=mean(differences),
        better=better,
        worse=worse,
        equal=len(differences) - better - worse,
        p_t=_p_of_t_test(a, b) if len(differences) > 1 else None,
        p_sign=float(binomtest(better, better + worse).pvalue) if better + worse else 1.0,
    )


def _p_of_t_test(a: Values, b: Values) -> float:
    if np.ptp(b - a) == 0:  # without variance t is 0 / 0 or infinite
        return float(np.array_equal(a, b))
    return float(ttest_rel(b, a).pvalue)


def _compare_metric(
    name: str, ranks_a: Sequence[Ranks], ranks_b: Sequence[Ranks]
) -> MetricComparison:
    targets_a = [target_metric(name, ranks) for ranks in ranks_a]
    targets_b = [target_metric(name, ranks) for ranks in ranks_b]
    windows_a = np.array([mean(values) for values in targets_a])
    windows_b = np.array([mean(values) for values in targets_b])
    return MetricComparison(
        name=name,
        windows=paired_test(windows_a, windows_b),
        ci95=bootstrap_interval(windows_b - windows_a),
        targets=paired_test(np.concatenate(targets_a), np.concatenate(targets_b)),
    )


def _common_windows(a: list[str], b: list[str]) -> list[str]:
    if a == b:
        return a
    only_a, only_b = sorted(set(a) - set(b)), sorted(set(b) - set(a))
    raise ComparisonError(
        f"the runs were evaluated on different windows: {len(a)} in A and {len(b)} in B; "
        f"only in A: {_listed(only_a)}; only in B: {_listed(only_b)}. Run one of them again with "
        f"the other's dataset, window.first and window.last"
    )


def _check_same(
    windows: Sequence[str],
    pairs: Sequence[tuple[WindowRanks, WindowRanks]],
    what: str,
    differing: Callable[[WindowRanks, WindowRanks], str],
) -> None:
    differences = [
        f"{window} ({difference})"
        for window, (of_a, of_b) in zip(windows, pairs, strict=True)
        if (difference := differing(of_a, of_b))
    ]
    if differences:
        raise ComparisonError(
            f"the runs were evaluated on different {what} in {len(differences)} of {len(windows)} "
            f"windows: {_listed(differences)}. Run one of them again with the other's dataset, "
            f"window section, evaluation.split and evaluation.positions, over the same data/windows"
        )


def _differing_sessions(a: WindowRanks, b: WindowRanks) -> str:
    if a.session_ids.equals(b.session_ids):
        return ""
    ids_a, ids_b = set(a.session_ids.to_pylist()), set(b.session_ids.to_pylist())
    return (
        f"{a.n_sessions} sessions against {b.n_sessions}, "
        f"{len(ids_a - ids_b)} only in A, {len(ids_b - ids_a)} only in B"
    )


def _differing_positions(a: WindowRanks, b: WindowRanks) -> str:
    kinds = ["last" if run.positions is None else "all" for run in (a, b)]
    return "" if kinds[0] == kinds[1] else " against ".join(kinds)


def _differing_targets(a: WindowRanks, b: WindowRanks) -> str:
    n = int(np.count_nonzero(a.targets != b.targets))
    return f"{n} of {len(a.targets)} targets" if n else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004
    return ", ".join(names[:5]) + more if names else "none"
