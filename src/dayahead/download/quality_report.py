"""What was found wrong with a log, held against the limits of the data set's file, and told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from dayahead.core.errors import SourceError
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.convert import Conversion, Source

_TINY = 0.001
"""Shares below this are told with more digits."""
_HEADINGS = ("check", "found", "of", "share", "limit", "verdict", "most in one file", "first")


@dataclass(frozen=True)
class Finding:
    """One check of the whole log."""

    check: str
    """Such as nulls.price: the key under `quality` in the data set's file."""
    found: int
    """Rows at fault; days of empty_days."""
    of: int
    limit: float | None
    """Share allowed; None: any."""
    examples: tuple[str, ...]
    """Where the first ones stand."""
    worst: str = ""
    """Share and name of the file with the largest share."""

    @property
    def share(self) -> float:
        """Part at fault."""
        return self.found / self.of if self.of else 0.0

    @property
    def is_too_much(self) -> bool:
        """Whether there is more than allowed."""
        return self.limit is not None and self.share > self.limit

    @property
    def unit(self) -> str:
        """What is counted."""
        return "days" if self.check == "empty_days" else "rows"

    def told(self) -> str:
        """One line."""
        limit = "" if self.limit is None else f" (limit {_percent(self.limit)})"
        return f"{self.check}: {_percent(self.share)} of {self.of:,} {self.unit}{limit}"


Files = Sequence[tuple[Source, Conversion]]


def judged(files: Files, dataset: DatasetConfig) -> list[Finding]:
    """Sum up the counts of all files and set the limits beside them."""
    checks = dict.fromkeys(check for _, conversion in files for check in conversion.counts)
    return [
        *(_summed(check, files, dataset) for check in checks),
        _empty_days(files, dataset.quality.empty_days),
    ]


def require_quality(findings: Sequence[Finding], name: str) -> None:
    """Refuse a log with more at fault than allowed.

    Args:
        findings: What was found.
        name: The data set.

    Raises:
        SourceError: naming every check beyond its limit, and the first place of each.
    """
    if too_much := [finding for finding in findings if finding.is_too_much]:
        checks = ", ".join(f"quality.{finding.check}" for finding in too_much)
        told = "; ".join(f"{finding.told()}, first {finding.examples[0]}" for finding in too_much)
        raise SourceError(
            f"datasets/{name}.yaml: too much of the log is at fault: {told}. Correct the files, "
            f"or, if that is how the log is, raise {checks} there"
        )


def report(findings: Sequence[Finding], name: str, n_files: int) -> str:
    """Tell all findings as an aligned table in Markdown."""
    lines = [_HEADINGS, *map(_cells, findings)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "| " + " | ".join(map(str.ljust, cells, widths)) + " |"
        for cells in [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    ]
    return "\n".join(
        [
            f"# Quality of the input: {name}",
            "",
            f"{n_files} file{'s' if n_files > 1 else ''}. Limits stand in datasets/{name}.yaml, "
            f"section quality; no limit: only reported.",
            "Duplicates are looked for among the events of one part of data/raw.",
            "",
            *table,
            "",
        ]
    )


def _summed(check: str, files: Files, dataset: DatasetConfig) -> Finding:
    counts = [
        (source, conversion.counts[check])
        for source, conversion in files
        if check in conversion.counts
    ]
    examples = [f"{source.url}{place}" for source, count in counts for place in count.examples]
    source, most = max(counts, key=lambda pair: pair[1].rows / max(pair[1].of, 1))
    return Finding(
        check,
        sum(count.rows for _, count in counts),
        sum(count.of for _, count in counts),
        dataset.quality.limit(check, dataset.needed_columns()),
        tuple(examples[:3]),
        f"{_percent(most.rows / most.of)} {source.file}" if most.rows else "",
    )


def _empty_days(files: Files, limit: float | None) -> Finding:
    days = sorted({date.fromisoformat(day) for _, conversion in files for day in conversion.days})
    gaps = [
        (before, (after - before).days - 1)
        for before, after in pairwise(days)
        if (after - before).days > 1
    ]
    span = (days[-1] - days[0]).days + 1 if days else 0
    examples = tuple(f"{n} after {before}" for before, n in gaps[:3])
    return Finding("empty_days", sum(n for _, n in gaps), span, limit, examples)


def _cells(finding: Finding) -> tuple[str, ...]:
    limit = "" if finding.limit is None else _percent(finding.limit)
    verdict = "none" if not finding.found else "allowed" if limit else "reported"
    found, of = f"{finding.found:,}", f"{finding.of:,} {finding.unit}"
    places = "; ".join(finding.examples).replace("|", "\\|")
    share = _percent(finding.share)
    return (finding.check, found, of, share, limit, verdict, finding.worst, places)


def _percent(share: float) -> str:
    return f"{share:.4%}" if 0 < share < _TINY else f"{share:.2%}"
