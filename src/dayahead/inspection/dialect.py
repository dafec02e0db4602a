"""How the rows of a csv file are written: delimiter, quote, escape, and whether it has a header."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.csv_header import DELIMITERS, Dialect
from dayahead.inspection.finding import Confidence, Finding
from dayahead.inspection.names import ROLES, name_score

_LINES = 500
_VALUE = re.compile(r"[-+]?[\d.,:/TZ\s+-]*\d[\d.,:/TZ\s+-]*(UTC|GMT|[AaPp][Mm])?|[0-9a-fA-F-]{20,}")
"""Numbers, times and hashes: what no column is called."""


@dataclass(frozen=True)
class Layout:
    """Settings of section `source` for a file, and why."""

    source: SourceConfig
    names: list[str]
    """Of its columns."""
    findings: list[Finding]


def find_layout(text: str, source: SourceConfig, name: str) -> Layout:
    """Look at the first lines of a csv file.

    Raises:
        SourceError: its rows do not have several values each.
    """
    start = text[: 1 << 20].splitlines()
    lines = [line for line in islice(start, _LINES + 1) if line.strip()]
    if lines and re.match(r'"?sep=', lines[0], re.IGNORECASE):
        lines = lines[1:]
    options = [_read(lines, source, delimiter) for delimiter in DELIMITERS]
    best = max(options, key=lambda each: each.score)
    if best.n_values < 2:  # noqa: PLR2004
        raise SourceError(
            f"{name}: is text, but no log: no character cuts its lines into the same number of "
            f"values ({lines[0][:60]!r}). Expected csv, JSON lines or parquet"
        )
    findings = [Finding("source.delimiter", repr(best.source.delimiter), *best.certainty)]
    source, quote = _with_quote(lines, best)
    rows = _rows(lines, source)
    source, header = _with_header(rows, source, best.n_values)
    dialect = Dialect.of(source)
    names = list(source.header or map(dialect.bare, map(dialect.shown, rows[0])))
    return Layout(source, names, [*findings, quote, header])


@dataclass(frozen=True)
class _Reading:
    source: SourceConfig
    n_values: int
    """Values of most rows."""
    share: float
    """Rows that have so many."""

    @property
    def score(self) -> tuple[float, float]:
        """Rows cut alike, then values: || before |, which finds empty ones; a blank is in texts."""
        sign, n = self.source.delimiter, float(self.n_values)
        weighted = 2 * n - 0.5 if len(sign) > 1 else n / 4 if sign == " " else n
        return (self.share if n > 1 else 0.0), weighted

    @property
    def certainty(self) -> tuple[Confidence, str]:
        level: Confidence = "certain" if self.share == 1 else "likely"
        return level, f"{self.share:.1%} of the first rows have {self.n_values} values"


def _rows(lines: Sequence[str], source: SourceConfig) -> list[list[str]]:
    dialect = Dialect.of(source)
    if dialect.is_replaced:
        lines = [line.replace(dialect.written, dialect.delimiter) for line in lines]
    try:
        return list(dialect.rows(f"{line}\n" for line in lines))
    except csv.Error:
        return []


def _read(lines: Sequence[str], source: SourceConfig, delimiter: str) -> _Reading:
    """Split lines at a delimiter, whether quotes enclose values or not."""
    readings = []
    for quote in dict.fromkeys((source.quote, None)):
        given = replace(source, delimiter=delimiter, quote=quote)
        rows = _rows(lines, given)
        n_values, n = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        # A stray quote makes one row of many lines; a few may be meant.
        share = n / len(rows) if len(rows) > len(lines) / 5 else 0.0
        readings.append(_Reading(given, n_values, round(share, 2)))
    best = max(readings, key=lambda each: each.score)
    return replace(best, source=replace(source, delimiter=delimiter))


def _with_quote(lines: Sequence[str], best: _Reading) -> tuple[SourceConfig, Finding]:
    """Return the settings with quote and escape; quotes that do not enclose values are ordinary."""
    key, sign = "source.quote", re.escape(best.source.delimiter)
    text = "\n".join(lines)
    for quote in "\"'":
        opened = len(re.findall(rf"(?:^|{sign}){quote}", text, re.MULTILINE))
        inside = rf"(?:[^{quote}\\]|{quote}{quote}|\\.)*"
        closed = len(re.findall(rf"(?:^|{sign}){quote}{inside}{quote}(?={sign}|$)", text, re.M))
        escaped = text.count(f"\\{quote}")
        source = replace(best.source, quote=quote, escape="\\" if escaped else None)
        least = best.share - 0.02 if quote == '"' else 1
        is_enclosing = opened and closed >= 0.98 * opened
        if is_enclosing and _read(lines, source, source.delimiter).share >= least:
            reason = f"{opened:,} values are in {quote}" + ", \\ before some" * bool(escaped)
            return source, Finding(key, quote, "certain", reason)
    if '"' not in text:
        return best.source, Finding(key, '"', "unsure", "no quote in the first rows: the usual one")
    reason = "quotes are within values, not around them"
    return replace(best.source, quote=None), Finding(key, "null", "likely", reason)


def _with_header(
    rows: Sequence[Sequence[str]], source: SourceConfig, n: int
) -> tuple[SourceConfig, Finding]:
    """Return the settings with names of columns if the first row has none."""
    first, rest = [cell.strip().strip('"') for cell in rows[0]], rows[1:50]
    values = [cell for cell in first if _VALUE.fullmatch(cell)]
    known = [cell for cell in first if any(name_score(cell, role) == 1 for role in ROLES)]
    below = [
        index
        for index in range(min(len(first), n))
        if any(_VALUE.fullmatch(row[index].strip()) for row in rest if len(row) > index)
    ]
    key, is_unique = "source.header", len(set(first)) == len(first)
    if not values and is_unique and (known or below):
        why = f"{', '.join(known[:3])}: usual names" if known else "its values are no numbers"
        return source, Finding(key, "first line", "certain" if known else "likely", why)
    names = tuple(f"column_{number}" for number in range(1, n + 1))
    why = f"the first line has values ({', '.join(values[:3])})" if values else "no usual name"
    found = Finding(key, "none", "certain" if values else "unsure", f"{why}: columns are numbered")
    return replace(source, header=names), found
