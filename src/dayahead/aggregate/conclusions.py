"""The conclusions of the report, as sentences."""

from collections.abc import Iterator, Sequence
from typing import Final

from dayahead.aggregate.findings import Findings
from dayahead.aggregate.lists import ListAverage
from dayahead.config.metric_names import title_of
from dayahead.statistics.differences import BaselineComparison, Difference

PLAIN: Final = {
    "popularity": "the most popular items",
    "own": "the session's own items",
    "transitions": "what is most often clicked after the last item",
}
"""What the counting baselines do."""
_CASES: Final = (100, 1000, 10_000)
_TWO_DIGITS: Final = 10


def sign_of(test: Difference) -> int | None:
    """Return 1 or -1 where the interval is above or below 0, else 0; None without one."""
    if test.ci95 is None:
        return None
    low, high = test.ci95
    return int(low > 0) - int(high < 0)


def conclusions(findings: Findings) -> Iterator[tuple[str, str]]:
    """Yield for each baseline or other run whether the run is above it, and the figures."""
    for baseline in findings.baselines:
        finding = _finding(findings.architecture, baseline, findings.metric)
        own, other = findings.summary.aod[findings.metric], baseline.aod[findings.metric]
        better, n_windows = baseline.better[findings.metric], findings.summary.n_windows
        figures = f"{own:.4f} against {other:.4f}, higher in {better:,} of {n_windows:,}"
        yield f"{finding}.", f"{title_of(findings.metric)} is {figures}."


def plain_answer(findings: Findings, rival: BaselineComparison) -> str:
    """Say in how many of 100 sessions the next click is among the recommended items.

    Recall at the longest cutoff is this share, beside that of the best of the others.
    """
    metric = findings.metric.replace("ndcg", "recall")
    own, other = findings.summary.aod[metric], rival.aod[metric]
    of = _base(own, other)
    types = findings.settings.get("events.targets")
    is_last = findings.settings.get("evaluation.positions", "last") == "last"
    target = f"next {' or '.join(types)}" if isinstance(types, Sequence) and types else "next click"
    among = f"recommends the {target} among its {metric.rpartition('_')[2]}"
    cases = "sessions" if is_last else "clicks"
    what = f" ({PLAIN[rival.name]})" if rival.name in PLAIN else ""
    return (
        f"{findings.architecture} {among} in {own * of:,.0f} of {of:,} {cases}; {rival.name}{what} "
        f"in {other * of:,.0f}."
    )


def _base(own: float, other: float) -> int:
    """Return the number of cases in which two shares differ, with two digits each."""
    for cases in _CASES:
        counts = round(own * cases), round(other * cases)
        if counts[0] != counts[1] and min(counts) >= _TWO_DIGITS:
            return cases
    return _CASES[0] if round(max(own, other) * _CASES[0]) else _CASES[-1]


def _finding(architecture: str, baseline: BaselineComparison, metric: str) -> str:
    sign = sign_of(baseline.tests[metric])
    if sign is None:
        return f"{architecture} and {baseline.name}: too few windows to tell"
    if sign == 0:
        return f"{architecture} and {baseline.name}: no clear difference in these windows"
    return f"{architecture} is {'above' if sign > 0 else 'below'} {baseline.name} in these windows"


def list_conclusion(lists: ListAverage) -> str | None:
    """Describe the longest lists; None where no lists were counted."""
    if not lists.cutoffs:
        return None
    k, aod = lists.cutoffs[-1], lists.aod
    return (
        f"In a window, lists of {k} show {100 * aod[f'coverage_at_{k}']:.1f} % of the items that "
        f"they could; {100 * aod[f'own_at_{k}']:.1f} % of their places are items of the session."
    )


def slice_conclusion(findings: Findings, rival: BaselineComparison) -> str:
    """Describe in how many groups of targets the run is above another, and where it is below."""
    groups = [
        (
            f"{each.label} ({slicing.title[0].lower()}{slicing.title[1:]})",
            sign_of(each.tests[rival.name]),
        )
        for slicing in findings.slicings
        for each in slicing.slices
    ]
    n_above = sum(sign == 1 for _, sign in groups)
    below = [label for label, sign in groups if sign == -1]
    if all(sign is None for _, sign in groups):
        return "Too few windows to tell."
    where = (
        f"; it is below in {len(below)}: {', '.join(below)}" if below else "; it is below in none"
    )
    return (
        f"{findings.architecture} is above {rival.name} in {n_above} of {len(groups)} groups of "
        f"targets{where}."
    )
