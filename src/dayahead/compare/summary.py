"""A comparison in words and figures, for the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill
from typing import Final

from dayahead.aggregate.averaging import MIN_WINDOWS, Interval
from dayahead.compare.paired_tests import Comparison, MetricComparison, PairedTest

_SURE: Final = 0.01
_LIKELY: Final = 0.05
_SMALLEST: Final = 0.0001
_WIDTH: Final = 100
_MEANS: Final = ("A", "B", "B - A")
_TESTS: Final = ("B better", "worse", "equal", "p (t)", "p (sign)")


def render(comparison: Comparison, a: str = "A", b: str = "B") -> str:
    """Tell in one sentence which run is better and how sure one may be, then in two tables.

    Args:
        comparison: of two runs.
        a: what the user calls the first.
        b: what the user calls the second.
    """
    n_windows, n_sessions, n_targets = (
        f"{comparison.n_windows:,} windows",
        f"{comparison.n_sessions:,} sessions",
        f"{comparison.n_targets:,} {_unit(comparison)}",
    )
    head = f"A = {a}\nB = {b}\n{n_windows}, {n_sessions}, the same targets in both"
    if comparison.has_equal_ranks:
        return f"{head}\n\nThe two runs are equal: every target has the same rank in both.\n"
    parts = [
        head,
        fill(_verdict(comparison), _WIDTH),
        f"Over {n_windows}, each counting once\n{_windows_table(comparison.metrics)}",
        f"Over {n_targets}, each counting once\n{_targets_table(comparison.metrics)}",
        "\n".join(
            fill(caution, _WIDTH, initial_indent="- ", subsequent_indent="  ")
            for caution in _cautions(comparison)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict(comparison: Comparison) -> str:
    chosen = _foremost(comparison.metrics)
    by_windows = comparison.n_windows >= MIN_WINDOWS
    unit, test = ("windows", chosen.windows) if by_windows else (_unit(comparison), chosen.targets)
    p = 1.0 if test.p_t is None else test.p_t
    better = "B" if test.difference > 0 else "A"
    if p < _SURE:
        finding = f"{better} is better, and chance hardly explains it"
    elif p < _LIKELY:
        finding = f"{better} is probably better, but chance is not ruled out"
    else:
        finding = "No difference can be told from chance"
    return (
        f"{finding}: {chosen.name} is {test.a:.4f} for A and {test.b:.4f} for B, and B is ahead "
        f"in {test.better:,} and behind in {test.worse:,} of the {unit}. Were the runs equally "
        f"good, so wide a gap would come about with a probability {_told(p)} (paired t-test over "
        f"{unit})."
    )


def _unit(comparison: Comparison) -> str:
    """A session has one target, or one after each of its items but the last."""
    return "sessions" if comparison.n_targets == comparison.n_sessions else "targets"


def _foremost(metrics: Sequence[MetricComparison]) -> MetricComparison:
    """NDCG at the longest cutoff, which regards the whole list and the place in it."""
    return [metric for metric in metrics if metric.name.startswith("ndcg")][-1]


def _windows_table(metrics: Sequence[MetricComparison]) -> str:
    head = ("metric", *_MEANS, "95 % interval", *_TESTS)
    rows = (
        (metric.name, *_means(metric.windows), _interval(metric.ci95), *_tests(metric.windows))
        for metric in metrics
    )
    return _table(head, rows)


def _targets_table(metrics: Sequence[MetricComparison]) -> str:
    head = ("metric", *_MEANS, *_TESTS)
    rows = ((metric.name, *_means(metric.targets), *_tests(metric.targets)) for metric in metrics)
    return _table(head, rows)


def _means(test: PairedTest) -> tuple[str, str, str]:
    return f"{test.a:.4f}", f"{test.b:.4f}", f"{test.difference:+.4f}"


def _interval(interval: Interval | None) -> str:
    return f"{interval[0]:+.4f} to {interval[1]:+.4f}" if interval else "-"


def _tests(test: PairedTest) -> tuple[str, str, str, str, str]:
    counts = f"{test.better:,}", f"{test.worse:,}", f"{test.equal:,}"
    return *counts, "-" if test.p_t is None else _p(test.p_t), _p(test.p_sign)


def _told(p: float) -> str:
    return f"of {p:.4f}" if p >= _SMALLEST else f"below {_SMALLEST}"


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= _SMALLEST else f"<{_SMALLEST}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _cautions(comparison: Comparison) -> Iterator[str]:
    if comparison.outside_a != comparison.outside_b:
        yield (
            f"The candidates differ: {comparison.outside_a:,} targets are outside A's and "
            f"{comparison.outside_b:,} outside B's. Look at evaluation.candidates of both."
        )
    if comparison.n_windows < MIN_WINDOWS:
        yield (
            f"Fewer than {MIN_WINDOWS} windows: the sentence above rests on "
            f"{_unit(comparison)} alone."
        )
    yield (
        f"The tests take windows and {_unit(comparison)} for independent. They are not: "
        f"neighbouring windows share a model and many of their items, so the true p-values are "
        f"larger."
    )
    yield (
        f"{len(comparison.metrics)} metrics are tested here: decide on one beforehand. Where you "
        f"compare many runs, divide the p you accept by their number."
    )
    yield "One run per side says nothing about seeds: repeat both with other training.seed values."
