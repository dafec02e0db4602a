"""Data quality: the defects of all files, checked against the limits, and reported."""

import logging
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dayahead.core.errors import SourceError
from dayahead.dataset.manifest import QualityResult
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.batches import EXAMPLES, QUOTE_ADVICE
from dayahead.download.convert import Files
from dayahead.download.file_quality import UNDECODABLE
from dayahead.download.ids import spelling_cure
from dayahead.download.reach import Reach

_TINY = 0.001
"""Shares below this are shown with more digits."""
_ADVICE = {
    "multiline": QUOTE_ADVICE,
    UNDECODABLE: "If the files have another encoding, set source.encoding",
    "outside": "See time.between there; where all times are outside, see time.unit",
    "stray": "See time.between there",
}
"""What else to do about a check that exceeds its limit."""
_HEADINGS = ("check", "found", "of", "share", "limit", "verdict", "most in one file", "first")
_log = logging.getLogger(__name__)


def check_quality(
    files: Files,
    dataset: DatasetConfig,
    name: str,
    reach: Reach | None,
    others: Sequence[QualityResult] = (),
) -> tuple[QualityResult, ...]:
    """Add up the counts of all files of a log; compare them, and other results, with the limits.

    `reach` says which events are strays; None: there is no event.

    Raises:
        SourceError: see `check_limits`.
    """
    results = [*totals(files, dataset), *others]
    results.append(_empty_days(files, dataset.quality.empty_days, reach))
    if reach is not None:
        results.append(reach.strays)
    check_limits(results, dataset, name, "log")
    return tuple(results)


def totals(files: Files, dataset: DatasetConfig) -> list[QualityResult]:
    """Add up the counts of all files."""
    checks = dict.fromkeys(check for each in files for check in each.quality.defects)
    results = [_total(check, files, dataset) for check in checks]
    return [each for each in results if each.found or each.check != UNDECODABLE]


def check_limits(
    results: Sequence[QualityResult], dataset: DatasetConfig, name: str, what: str
) -> None:
    """Log what was found in the log or table, `what`, and compare it with the limits.

    Raises:
        SourceError: names every check that exceeds its limit, and the location of its first defect.
    """
    for result in results:
        if result.found:
            _log.info("quality: %s", _summary(result))
    exceeded = [each for each in results if each.limit is not None and each.share > each.limit]
    if exceeded:
        limits = ", ".join(f"quality.{_key(result.check)}" for result in exceeded)
        found = "; ".join(f"{_summary(result)}, first {result.examples[0]}" for result in exceeded)
        advice = "".join(f". {_ADVICE[each.check]}" for each in exceeded if each.check in _ADVICE)
        names = [each.check.partition(".") for each in exceeded]
        cures = [spelling_cure(name, dataset) for kind, _, name in names if kind == "spellings"]
        cure = f" set {' and '.join(cures)}, or" if cures else ", if that is how the log is,"
        raise SourceError(
            f"datasets/{name}.yaml: too many defects in the {what}: {found}. Correct the files, or"
            f"{cure} raise {limits} there{advice}"
        )


def _key(check: str) -> str:
    """Return the key of a check's limit: one for the spellings of all columns."""
    return "spellings" if check.startswith("spellings.") else check


def _total(check: str, files: Files, dataset: DatasetConfig) -> QualityResult:
    having = [each for each in files if check in each.quality.defects]
    found = [(each.source, each.quality.defects[check]) for each in having]
    examples = [f"{source.url}{where}" for source, defects in found for where in defects.examples]
    source, worst = max(found, key=lambda each: each[1].rows / max(each[1].of, 1))
    return QualityResult(
        check,
        sum(defects.rows for _, defects in found),
        sum(defects.of for _, defects in found),
        dataset.quality.limit(check, dataset.needed_columns()),
        tuple(examples[:EXAMPLES]),
        f"{_percent(worst.rows / worst.of)} {source.file}" if worst.rows else "",
    )


def _empty_days(files: Files, limit: float | None, reach: Reach | None) -> QualityResult:
    found = sorted({day for each in files for day in each.quality.days})
    days = [day for day in found if reach is None or reach.first <= day <= reach.last]
    gaps = [(np.datetime64(before, "D"), after - before - 1) for before, after in pairwise(days)]
    span = days[-1] - days[0] + 1 if days else 0
    examples = [f"{n} after {before}" for before, n in gaps if n]
    n_empty = sum(n for _, n in gaps)
    return QualityResult("empty_days", n_empty, span, limit, tuple(examples[:EXAMPLES]))


def _summary(result: QualityResult) -> str:
    limit = "" if result.limit is None else f" (limit {_percent(result.limit)})"
    return f"{result.check}: {_percent(result.share)} of {result.of:,} {_unit(result)}{limit}"


def report(
    results: Sequence[QualityResult],
    name: str,
    n_files: int,
    items: Sequence[QualityResult] | None = None,
) -> str:
    """Return all results as aligned tables in Markdown; `items` are those of a table of items."""
    lines = [
        f"# Quality of the input: {name}",
        "",
        f"{n_files} file{'s' if n_files > 1 else ''}. Limits stand in datasets/{name}.yaml, "
        f"section quality; no limit: only reported.",
        "Duplicates are looked for over all files.",
        "",
        *_aligned(results),
        "",
    ]
    if items is not None:
        lines += ["## Items", "", *_aligned(items), ""]
    return "\n".join(lines)


def _aligned(results: Sequence[QualityResult]) -> list[str]:
    lines = [_HEADINGS, *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in lines]


def _cells(result: QualityResult) -> tuple[str, ...]:
    limit = "" if result.limit is None else _percent(result.limit)
    outcome = "none" if not result.found else "allowed" if limit else "reported"
    found, of = f"{result.found:,}", f"{result.of:,} {_unit(result)}"
    locations = "; ".join(result.examples).replace("|", "\\|")
    share = _percent(result.share)
    return (result.check, found, of, share, limit, outcome, result.worst, locations)


def _unit(result: QualityResult) -> str:
    return "days" if result.check == "empty_days" else "rows"


def _percent(share: float) -> str:
    return f"{share:.4%}" if 0 < share < _TINY else f"{share:.2%}"
