"""A table of items beside a log: which column names the items, and what describes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.errors import SourceError
from dayahead.dataset.time import TimeConfig
from dayahead.download.availability import to_limits
from dayahead.inspection.dataset_file import comments, feature_lines, source_lines
from dayahead.inspection.features import Features, add_signs, free_name, not_wanted
from dayahead.inspection.finding import Finding, scalar
from dayahead.inspection.keys import Keys, item_type
from dayahead.inspection.names import name_score
from dayahead.inspection.table import Column, Table
from dayahead.inspection.times import read

_LEAST = 0.1
"""Share of the log's items that the table must have."""
_DISTINCT = 0.5
"""Share of the items from which on different values are texts, no categories."""


@dataclass
class ItemTable:
    """Section `items` of the data set file, as it grows."""

    table: Table
    column: Column
    """The items' ids."""
    findings: list[Finding] = field(default_factory=list)
    features: Features = field(default_factory=Features)
    texts: list[str] = field(default_factory=list)
    """Columns of the vector of texts."""
    limits: dict[str, str] = field(default_factory=dict)
    """Columns of available_from and available_until."""

    def note(self, key: str, value: str, confidence: str, reason: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(f"items.{key}", value, confidence, reason))  # type: ignore[arg-type]

    def lines(self, urls: Sequence[str], of_source: Sequence[Finding], kind: str) -> Iterator[str]:
        """Return the section.

        Args:
            urls: of its source.
            of_source: findings about how its files are written.
            kind: type of the log's items.
        """
        yield "# What items are like, before anyone clicks them. To recommend them then, run with"
        yield "# -S evaluation.candidates=known. A row holds from the first window on."
        yield "items:"
        source = source_lines(self.table, self.features, urls, of_source)
        yield from (f"  {line}" for line in source)
        yield from comments(self.findings, "items.item_id")
        yield f"  item_id: {{column: {scalar(self.column.name)}, type: {kind}}}"
        for name, column in self.limits.items():
            yield from comments(self.findings, f"items.{name}")
            yield f"  {name}: {scalar(column)}"
        features = feature_lines(self.features, self.findings, "items.")
        yield from (f"  {line}" for line in features)
        if self.texts:
            columns = ", ".join(map(scalar, self.texts))
            yield "  vectors:"
            yield f"    content: {{kind: text, columns: [{columns}]}}"
        for name, reason in self.features.not_used.items():
            yield f"  # {scalar(name)}: not used ({reason})".replace("\n", " ")


def find_items(
    table: Table, log: Table, keys: Keys, time: TimeConfig, taken: Features
) -> ItemTable:
    """Look at a table of items.

    Args:
        table: the table.
        log: its log, of which `keys` are the columns by role.
        keys: see there.
        time: how the log's times are written, which availability is read like.
        taken: the log's features, whose names are theirs alone.

    Raises:
        SourceError: no column has the log's items.
    """
    found = _table_of(table, log.columns[keys.item])
    categories = []
    for column in table.columns.values():
        if column is found.column:
            continue
        kind, reason = _kind(column, found, time)
        if kind in ("available_from", "available_until"):
            found.limits[kind] = column.name
            found.note(kind, column.name, "likely", reason)
        elif kind == "text":
            found.texts.append(column.name)
        elif kind == "":
            found.features.not_used[column.name] = reason
        else:
            categories += [column.name] if kind == "categorical" and column.kind == "text" else []
            _add(found, column, kind, reason, taken)
    if found.texts:
        found.texts += categories
        found.note(
            "vectors.content", ", ".join(found.texts), "likely", "texts, and what they are of"
        )
    return found


def _table_of(table: Table, items: Column) -> ItemTable:
    wanted = items.distinct
    shares = {
        name: pc.sum(pc.is_in(wanted, value_set=column.distinct)).as_py() / max(1, len(wanted))
        for name, column in table.columns.items()
    }
    best = max(shares, key=lambda name: shares[name])
    if shares[best] < _LEAST:
        example = wanted[0].as_py() if len(wanted) else ""
        raise SourceError(
            f"no column of the table of items has the log's items ({items.name}: {example!r}); it "
            f"has {', '.join(f'{n}: {_example(c)}' for n, c in table.columns.items())[:300]}. "
            f"Write ids in both alike, or leave out --items"
        )
    found = ItemTable(table, table.columns[best])
    column = found.column
    found.note("item_id", best, "certain", f"{shares[best]:.1%} of the log's items are in it")
    if repeated := column.n - len(column.distinct):
        why = f"{repeated:,} of {column.n:,} rows have the item of another; the last one holds"
        found.note(
            "time", "none", "unsure", f"{why}, unless a column says from when: see docs/items.md"
        )
    return found


def _example(column: Column) -> str:
    return repr(column.distinct[0].as_py()) if column.n else "empty"


def _kind(column: Column, found: ItemTable, time: TimeConfig) -> tuple[str, str]:
    """Return the kind of feature, a limit, or text; empty for none; and why."""
    for name in ("available_from", "available_until"):
        if name_score(column.name, name) and name not in found.limits:
            return _limit(column, name, time)
    if reason := not_wanted(column):
        return "", reason
    if column.kind != "number" and read(column):
        return "", "times; with items.time a row would hold from then on"
    if column.kind in ("int", "number") and name_score(column.name, "price"):
        return "log_number", "a price by its name"
    n, share = len(column.distinct), len(column.distinct) / max(1, len(found.column.distinct))
    is_many = share > _DISTINCT
    if column.kind == "text" and (name_score(column.name, "title") or is_many):
        return "text", ""
    is_category = column.kind != "number" and not is_many
    return ("categorical", f"{n:,} values") if is_category else ("", f"{n:,} values, no category")


def _limit(column: Column, name: str, time: TimeConfig) -> tuple[str, str]:
    """Return the limit if its times are read as they would be, else none."""
    values = column.values if column.kind == "time" else column.distinct
    try:
        to_limits(values, time)
    except pa.ArrowException:
        return (
            "",
            f"{name} by its name, but {_example(column)} is not written as the log's times are",
        )
    return name, f"its name, and times such as {_example(column)}"


def _add(found: ItemTable, column: Column, kind: str, reason: str, taken: Features) -> None:
    features = found.features
    if kind == "log_number" and column.kind == "number":
        add_signs(features, column)
    name = free_name(column.name, features)
    name = f"item_{name}" if name in taken.lines else name
    is_int = ", type: int" if kind == "categorical" and item_type(column) == "int" else ""
    features.lines[name] = f"{{kind: {kind}, column: {scalar(column.name)}{is_int}}}"
    found.note(f"features.{name}", kind, "likely", reason)
