"""The conclusions of the report, as sentences."""

from collections.abc import Iterator

from dayahead.aggregate.findings import Findings
from dayahead.statistics.differences import BaselineComparison, Difference

TITLES = {"recall": "Recall", "ndcg": "NDCG", "mrr": "MRR"}


def title_of(metric: str) -> str:
    """Return ndcg_at_20 as NDCG@20."""
    kind, cutoff = metric.split("_at_")
    return f"{TITLES.get(kind, kind)}@{cutoff}"


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


def _finding(architecture: str, baseline: BaselineComparison, metric: str) -> str:
    sign = sign_of(baseline.tests[metric])
    if sign is None:
        return f"{architecture} and {baseline.name}: too few windows to tell"
    if sign == 0:
        return f"{architecture} and {baseline.name}: no clear difference in these windows"
    return f"{architecture} is {'above' if sign > 0 else 'below'} {baseline.name} in these windows"


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
