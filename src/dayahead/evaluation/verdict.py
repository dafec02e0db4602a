"""A comparison in words and figures, for the terminal."""

from collections.abc import Iterable, Sequence
from typing import Final

from dayahead.evaluation.averaging import MIN_WINDOWS
from dayahead.evaluation.comparison import Comparison, MetricComparison, PairedTest

_SURE: Final = 0.01
_LIKELY: Final = 0.05


def render(comparison: Comparison, a: str = "A", b: str = "B") -> str:
    """Tell in one sentence which run is better and how sure one may be, then in two tables.

    Args:
        comparison: of two runs.
        a: what the user calls the first.
        b: what the user calls the second.
    """
    over = f"{comparison.n_windows:,} windows", f"{comparison.n_sessions:,} sessions"
    parts = [
        f"A = {a}\nB = {b}\n{over[0]}, {over[1]}, the same targets in both",
        _verdict(comparison),
        f"Over {over[0]}, each counting once\n{_windows_table(comparison.metrics)}",
        f"Over {over[1]}, each counting once\n{_sessions_table(comparison.metrics)}",
        _cautions(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict(comparison: Comparison) -> str:
    if comparison.has_equal_ranks:
        return "The two runs are equal: every target has the same rank in both."
    chosen = _foremost(comparison.metrics)
    by_windows = comparison.n_windows >= MIN_WINDOWS
    test = chosen.windows if by_windows else chosen.sessions
    p = 1.0 if test.p_t is None else test.p_t
    winner = "B" if test.difference > 0 else "A"
    if p < _SURE:
        finding = f"{winner} is better, and chance hardly explains it"
    elif p < _LIKELY:
        finding = f"{winner} is probably better, but chance is not ruled out"
    else:
        finding = "No difference can be told from chance"
    unit = "windows" if by_windows else "sessions"
    return (
        f"{finding}: {chosen.name} is {chosen.a:.4f} for A and {chosen.b:.4f} for B "
        f"({chosen.b - chosen.a:+.4f}), B ahead in {test.better:,} and behind in {test.worse:,} "
        f"of the {unit}; were the runs equally good, a gap this wide would come about with "
        f"probability {_p(test.p_t).strip()} (paired t-test over {unit})."
    )


def _foremost(metrics: Sequence[MetricComparison]) -> MetricComparison:
    """NDCG at the longest cutoff, which regards the whole list and the place in it."""
    return [metric for metric in metrics if metric.name.startswith("ndcg")][-1]


def _windows_table(metrics: Sequence[MetricComparison]) -> str:
    head = ("metric", "A", "B", "B - A", "95 % interval", "better/worse/equal", "p (t)", "p (sign)")
    rows = (
        (
            metric.name,
            f"{metric.a:.4f}",
            f"{metric.b:.4f}",
            f"{metric.b - metric.a:+.4f}",
            f"{metric.ci95[0]:+.4f} to {metric.ci95[1]:+.4f}" if metric.ci95 else "-",
            *_counts_and_ps(metric.windows),
        )
        for metric in metrics
    )
    return _table(head, rows)


def _sessions_table(metrics: Sequence[MetricComparison]) -> str:
    head = ("metric", "B - A", "better/worse/equal", "p (t)", "p (sign)")
    rows = (
        (metric.name, f"{metric.sessions.difference:+.4f}", *_counts_and_ps(metric.sessions))
        for metric in metrics
    )
    return _table(head, rows)


def _counts_and_ps(test: PairedTest) -> tuple[str, str, str]:
    return f"{test.better}/{test.worse}/{test.equal}", _p(test.p_t), _p(test.p_sign)


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}"  # noqa: PLR2004


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


def _cautions(comparison: Comparison) -> str:
    cautions = [
        "The tests take windows and sessions for independent. They are not: neighbouring windows "
        "share a model, so true p-values are larger.",
        f"{len(comparison.metrics)} metrics are tested here. Decide on one beforehand; where you "
        "compare many runs, divide the p you accept by their number.",
        "One run per side says nothing about seeds: repeat both with other training.seed values.",
    ]
    if comparison.n_windows < MIN_WINDOWS:
        cautions.insert(
            0, f"Fewer than {MIN_WINDOWS} windows: the sentence above rests on sessions alone."
        )
    if comparison.outside_a != comparison.outside_b:
        cautions.insert(
            0,
            f"The candidates differ: {comparison.outside_a:,} targets are outside A's and "
            f"{comparison.outside_b:,} outside B's. Look at evaluation.candidates of both.",
        )
    return "\n".join(f"- {caution}" for caution in cautions)
