"""A comparison of two settings in words and tables, for the terminal."""

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any, Final

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.metrics.metrics import main_metric
from dayahead.statistics.intervals import MIN_WINDOWS
from dayahead.statistics.paired_tests import Comparison, FigureComparison, MetricComparison

_SIGNIFICANT: Final = 0.01
_SMALLEST: Final = 0.0001
_WIDTH: Final = 100
_HEAD: Final = ("metric", "A", "B", "B - A", "95 % interval")


def summarize(comparison: Comparison, a: str = "A", b: str = "B") -> str:
    """Describe in one sentence which setting is better, if this is significant, and in tables.

    `a` and `b` are the user's names for the runs.
    """
    windows, targets = f"{comparison.n_windows:,} windows", f"{comparison.n_targets:,}"
    head = f"A = {a}\nB = {b}\n{windows}, {comparison.n_sessions:,} sessions, the same targets"
    if comparison.has_equal_ranks:
        return f"{head}\n\nThe runs are equal: every target has the same rank in all of them.\n"
    caveats = (
        fill(caveat, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for caveat in _caveats(comparison)
    )
    lists = _aligned(_HEAD, [_cells(each) for each in comparison.lists])
    parts = [
        head,
        fill(_conclusion(comparison), _WIDTH),
        f"Over {windows}, equally weighted\n{_window_table(comparison)}",
        f"Over {targets} {_unit(comparison)}, equally weighted\n{_target_table(comparison)}",
        *([f"What the lists show, over {windows}\n{lists}"] if comparison.lists else []),
        "\n".join(caveats),
    ]
    return "\n\n".join(parts) + "\n"


def json_of(comparison: Comparison, a: str, b: str) -> dict[str, Any]:
    """Return a comparison for programs: the sentence, and the numbers that the tables show."""
    is_equal = comparison.has_equal_ranks
    return {
        "a": a,
        "b": b,
        "conclusion": "The runs are equal" if is_equal else _conclusion(comparison),
        "windows": comparison.n_windows,
        "sessions": comparison.n_sessions,
        "targets": comparison.n_targets,
        "metrics": {
            each.name: _numbers(each)
            | {"p": each.test.p, "windows_better": each.better, "windows_worse": each.worse}
            for each in comparison.metrics
        },
        "lists": {each.name: _numbers(each) for each in comparison.lists},
    }


def _numbers(each: FigureComparison) -> dict[str, Any]:
    difference, ci95 = each.test.difference, each.test.ci95
    return {"a": each.a, "b": each.b, "difference": difference, "ci95": ci95}


def _conclusion(comparison: Comparison) -> str:
    metrics = {metric.name: metric for metric in comparison.metrics}
    metric = metrics[main_metric(metrics)]
    return (
        f"{_finding(comparison, metric)}: {metric.name} is {metric.a:.4f} for A and "
        f"{metric.b:.4f} for B; B is better in {metric.better:,} and worse in {metric.worse:,} of "
        f"the windows. {_certainty(comparison, metric)}"
    )


def _finding(comparison: Comparison, metric: MetricComparison) -> str:
    if not comparison.has_enough_windows:
        return "Not enough windows to tell"
    if metric.test.p is None:
        return "Not enough runs to tell"
    if metric.test.p < _SIGNIFICANT:
        return f"{'B' if metric.test.difference > 0 else 'A'} is better"
    return "No significant difference"


def _certainty(comparison: Comparison, metric: MetricComparison) -> str:
    if not comparison.has_enough_windows:
        return (
            f"A comparison takes {MIN_WINDOWS} windows or more: set window.first and window.last "
            f"so that both runs evaluate more."
        )
    if metric.test.p is None:
        return (
            "Another training.seed alone also makes a difference, and one run of a setting does "
            "not show how large. Repeat both with two more seeds (-S training.seed=2 and 3) and "
            "compare A1,A2,A3 B1,B2,B3."
        )
    return (
        f"If the settings were equally good, a difference this large would occur with probability "
        f"{_p(metric.test.p, 'at most ', 'below ')} (t-test over windows and runs)."
    )


def _unit(comparison: Comparison) -> str:
    """Return what the targets are called: sessions, where each has one target, or targets."""
    return "sessions" if comparison.n_targets == comparison.n_sessions else "targets"


def _window_table(comparison: Comparison) -> str:
    rows = [
        (
            *_cells(each),
            *(f"{count:,}" for count in (each.better, each.worse, each.equal)),
            "-" if each.test.p is None else _p(each.test.p, "", "<"),
        )
        for each in comparison.metrics
    ]
    return _aligned((*_HEAD, "B better", "worse", "equal", "p"), rows)


def _cells(each: FigureComparison) -> tuple[str, ...]:
    difference, ci95 = each.test.difference, each.test.ci95
    interval = "{:+.4f} to {:+.4f}".format(*ci95) if ci95 else "-"
    return each.name, f"{each.a:.4f}", f"{each.b:.4f}", f"{difference:+.4f}", interval


def _target_table(comparison: Comparison) -> str:
    rows = [
        (
            *(each.name, f"{each.targets_a:.4f}", f"{each.targets_b:.4f}"),
            f"{each.targets_b - each.targets_a:+.4f}",
        )
        for each in comparison.metrics
    ]
    return _aligned(_HEAD[:4], rows)


def _aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    alignment = ["left"] + ["right"] * (len(head) - 1)
    return str(tabulate(rows, head, tablefmt="plain", disable_numparse=True, colalign=alignment))


def _p(p: float, equals: str, below: str) -> str:
    return f"{equals}{p:.4f}" if p >= _SMALLEST else f"{below}{_SMALLEST}"


def _caveats(comparison: Comparison) -> Iterator[str]:
    if len({*comparison.outside_a, *comparison.outside_b}) > 1:
        a, b = (
            ", ".join(f"{count:,}" for count in counts)
            for counts in (comparison.outside_a, comparison.outside_b)
        )
        yield (
            f"The candidates differ: {a} targets are not among A's and {b} not among B's. Compare "
            f"evaluation.candidates and live.tick of the runs."
        )
    if comparison.has_enough_windows and not comparison.has_enough_runs:
        yield (
            "The intervals are those of these runs over windows; other seeds widen them."
            if comparison.n_runs == (1, 1)
            else "One setting has a single run: its seeds are taken to vary as the other's."
        )
    yield (
        "The intervals allow for windows that resemble their neighbours, which share a model and "
        "many of their items. With fewer than 14 windows they allow for little of it."
    )
    yield (
        f"{len(comparison.metrics)} metrics are tested here: choose one in advance. To compare "
        f"many settings, divide the significance level by their number."
    )
