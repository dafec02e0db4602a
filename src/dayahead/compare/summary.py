"""A comparison of two runs in words and tables, for the terminal."""

from collections.abc import Callable, Iterator, Sequence
from textwrap import fill
from typing import Final

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.aggregate.averaging import MIN_WINDOWS
from dayahead.compare.paired_tests import Comparison, MetricComparison, PairedTest

_SIGNIFICANT: Final = 0.01
_LIKELY: Final = 0.05
_SMALLEST: Final = 0.0001
_WIDTH: Final = 100


def summarize(comparison: Comparison, a: str = "A", b: str = "B") -> str:
    """Say in one sentence which run is better and how significant that is, then in two tables.

    `a` and `b` are the user's names for the runs.
    """
    windows, targets = f"{comparison.n_windows:,} windows", f"{comparison.n_targets:,}"
    head = f"A = {a}\nB = {b}\n{windows}, {comparison.n_sessions:,} sessions, the same targets"
    if comparison.has_equal_ranks:
        return f"{head}\n\nThe two runs are equal: every target has the same rank in both.\n"
    caveats = (
        fill(caveat, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for caveat in _caveats(comparison)
    )
    parts = [
        head,
        fill(_conclusion(comparison), _WIDTH),
        f"Over {windows}, equally weighted\n"
        f"{_table(comparison.metrics, lambda metric: metric.windows, has_interval=True)}",
        f"Over {targets} {_unit(comparison)}, equally weighted\n"
        f"{_table(comparison.metrics, lambda metric: metric.targets)}",
        "\n".join(caveats),
    ]
    return "\n\n".join(parts) + "\n"


def _conclusion(comparison: Comparison) -> str:
    metric = [metric for metric in comparison.metrics if metric.name.startswith("ndcg")][-1]
    unit, test = "windows", metric.windows
    if comparison.n_windows < MIN_WINDOWS:
        unit, test = _unit(comparison), metric.targets
    p = 1.0 if test.p_t is None else test.p_t
    probability = f"p = {p:.4f}" if p >= _SMALLEST else f"p < {_SMALLEST}"
    better = "B" if test.difference > 0 else "A"
    if p < _SIGNIFICANT:
        finding = f"{better} is better"
    elif p < _LIKELY:
        finding = f"{better} is probably better"
    else:
        finding = "No significant difference"
    return (
        f"{finding}: {metric.name} is {test.a:.4f} for A and {test.b:.4f} for B; B is better in "
        f"{test.better:,} and worse in {test.worse:,} of the {unit}. If the runs were equally "
        f"good, a difference this large would occur with probability {probability} (paired "
        f"t-test over {unit})."
    )


def _unit(comparison: Comparison) -> str:
    """A session has one target, or one after each of its items but the last."""
    return "sessions" if comparison.n_targets == comparison.n_sessions else "targets"


def _table(
    metrics: Sequence[MetricComparison],
    test_of: Callable[[MetricComparison], PairedTest],
    *,
    has_interval: bool = False,
) -> str:
    head = ["metric", "A", "B", "B - A", "B better", "worse", "equal", "p (t)", "p (sign)"]
    if has_interval:
        head.insert(4, "95 % interval")
    rows = []
    for metric in metrics:
        test = test_of(metric)
        row = [metric.name, f"{test.a:.4f}", f"{test.b:.4f}", f"{test.difference:+.4f}"]
        if has_interval:
            row.append("{:+.4f} to {:+.4f}".format(*metric.ci95) if metric.ci95 else "-")
        row += (f"{count:,}" for count in (test.better, test.worse, test.equal))
        rows.append([*row, "-" if test.p_t is None else _p(test.p_t), _p(test.p_sign)])
    alignment = ["left"] + ["right"] * (len(head) - 1)
    return str(tabulate(rows, head, tablefmt="plain", disable_numparse=True, colalign=alignment))


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= _SMALLEST else f"<{_SMALLEST}"


def _caveats(comparison: Comparison) -> Iterator[str]:
    unit = _unit(comparison)
    if comparison.outside_a != comparison.outside_b:
        yield (
            f"The candidates differ: {comparison.outside_a:,} targets are not among A's and "
            f"{comparison.outside_b:,} not among B's. Compare evaluation.candidates of both runs."
        )
    if comparison.n_windows < MIN_WINDOWS:
        yield f"Fewer than {MIN_WINDOWS} windows: the conclusion is based on {unit} alone."
    yield (
        f"The tests assume independent windows and {unit}. They are not: neighbouring windows "
        f"share a model and many of their items, so the true p-values are larger."
    )
    yield (
        f"{len(comparison.metrics)} metrics are tested here: choose one in advance. To compare "
        f"many runs, divide the significance level by their number."
    )
    yield "One run each says nothing about seeds: repeat both with other training.seed values."
