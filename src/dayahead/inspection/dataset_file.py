"""The data set file with a comment on each guess."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dayahead.inspection.features import Features
from dayahead.inspection.finding import Finding, printable, scalar
from dayahead.inspection.keys import Keys, item_type
from dayahead.inspection.table import Table
from dayahead.inspection.times import Reading

_ALLOWED_NULLS = 0.01
"""Default limit of quality.nulls on required columns."""
_SPLIT = """\
# A hash of the session id decides its roles. All are trained on: a window is evaluated before.
split:
  seed: 1
  train: [0, 1]
  valid: [0, 0.5]
  test: [0.5, 1]
"""


@dataclass(frozen=True)
class DatasetFile:
    """What was found, as YAML with comments."""

    table: Table
    reading: Reading
    keys: Keys
    features: Features
    findings: Sequence[Finding]
    """All of them; those of a setting stand above it."""

    def text(self, urls: Sequence[str], head: Sequence[str], items: Iterable[str] = ()) -> str:
        """Return the file's text.

        Args:
            urls: of section `source`.
            head: lines at the top, what was read and how to go on.
            items: section `items`.
        """
        sections = (
            self._source(urls),
            self._columns(),
            self._time(),
            self._sessions(),
            self._features(),
            items,
            [_SPLIT.rstrip("\n")],
            self._quality(),
        )
        top = [*(f"# {line}" if line else "#" for line in head)]
        names = scalar(f"Log with the columns {', '.join(self.table.columns)[:200]}.")
        top += [f"description: {names}", "licence: internal"]
        lines = [*top, *(line for section in sections for line in section)]
        return "".join(f"{printable(line)}\n" for line in lines)

    def _why(self, *keys: str) -> Iterator[str]:
        return comments(self.findings, *keys)

    def _source(self, urls: Sequence[str]) -> Iterator[str]:
        yield from source_lines(self.table, self.features, urls, self.findings)
        if (event_type := self.keys.event_type) is not None:
            shown = ", ".join(map(scalar, self.table.columns[event_type].counts()))
            yield "  # To count and recommend some types only, keep their rows alone:"
            yield f"  # where: {{{scalar(event_type)}: [{shown}]}}"

    def _columns(self) -> Iterator[str]:
        keys, columns = self.keys, self.table.columns
        yield "columns:"
        yield from self._why("columns", "columns.item_id")
        kind = item_type(columns[keys.item])
        yield f"  item_id: {{column: {scalar(keys.item)}, type: {kind}}}"
        if keys.session is not None:
            yield from self._why("columns.session_id")
            parts = [self._key(name) for name in (keys.user, keys.session) if name]
            both = keys.is_of_user and len(parts) > 1
            yield f"  session_id: {'[' + ', '.join(parts) + ']' if both else parts[-1]}"
        if keys.user is not None:
            yield from self._why("columns.user_id")
            yield f"  user_id: {self._key(keys.user)}"
        for name in ("event_type", "event_id"):
            if (column := getattr(keys, name)) is not None:
                yield from self._why(f"columns.{name}")
                yield f"  {name}: {scalar(column)}"
        if self.features.title is not None:
            yield f"  title: {self.features.title}"

    def _key(self, name: str) -> str:
        """Return a key; numbers that were floats (17.0) are read as numbers."""
        texts = self.table.columns[name].distinct.to_pylist()
        is_whole = all(re.fullmatch(r"\d+(\.0)?", text) for text in texts)
        is_float = is_whole and any(text.endswith(".0") for text in texts)
        return f"{{column: {scalar(name)}, type: int}}" if is_float else scalar(name)

    def _time(self) -> Iterator[str]:
        config = self.reading.config
        yield "time:"
        yield from self._why("time.column")
        yield f"  column: {scalar(config.column)}"
        yield from self._why("time.unit", "time.format")
        yield f"  unit: {config.unit}"
        for number, form in enumerate(self.reading.formats):
            yield f"  {'# ' if number else ''}format: {scalar(form)}"
        yield from self._why("time.between", "time.offset", "time.zone")
        yield f"  zone: {config.zone}"
        yield "  # Without it the last day is open until the next one begins. For a file a day:"
        yield "  # complete_until: yesterday"

    def _sessions(self) -> Iterator[str]:
        yield "sessions:"
        yield from self._why("sessions.duplicates", "sessions.retry_seconds")
        yield "  # duplicates: drop"
        yield "  # retry_seconds: 2"
        yield from self._why("sessions.gap_minutes")
        if self.keys.session is None:
            yield "  gap_minutes: 30"
        yield from self._why("sessions.repeats")
        yield "  repeats: {rule: keep, scope: session}"

    def _features(self) -> Iterator[str]:
        yield "# A model uses those that model.features names. of_item: one value for each item."
        yield from feature_lines(self.features, self.findings)
        for name, reason in self.features.not_used.items():
            yield f"  # {scalar(name)}: not used ({reason})".replace("\n", " ")

    def _quality(self) -> Iterator[str]:
        """Allow the nulls of the sample where they are above the default limit."""
        keys, limits = self.keys, []
        owner = ("session_id", keys.session) if keys.session else ("user_id", keys.user)
        time = ("event_time", self.reading.config.column)
        for key, name in (("item_id", keys.item), owner, time):
            names = [name, keys.user if keys.is_of_user and name == keys.session else None]
            share = max(self.table.columns[each].nulls for each in names if each)
            if share > _ALLOWED_NULLS / 2:
                limits.append(f"{key}: {_limit(share):g}")
        lines = []
        if limits:
            lines.append(
                "  # Rows without them are no events: dropped and counted, up to this share."
            )
            lines.append(f"  nulls: {{{', '.join(limits)}}}")
        n, table = self.table.n_rows, self.table
        for name, count in (
            ("unreadable", table.unreadable + self.reading.unread),
            ("multiline", table.multiline),
        ):
            if count:
                lines.append(f"  # In the sample: {count:,} of {n:,} rows.")
                lines.append(f"  {name}: {_limit(count / n):g}")
        yield from ["quality:", *lines] if lines else []


def source_lines(
    table: Table, features: Features, urls: Sequence[str], findings: Sequence[Finding]
) -> Iterator[str]:
    """Return the section `source` of a log or of a table of items."""
    source, defaults = table.source, type(table.source)(urls=("x",))
    yield "source:"
    yield "  # Absolute paths: `dvc exp run --temp` finds them too. A glob takes in new files."
    yield "  # Where others have them elsewhere: ${oc.env:LOGS}/*.csv, and a variable LOGS on each."
    yield "  urls:"
    yield from (f"  - {scalar(url)}" for url in urls)
    for name in ("format", "encoding", "delimiter", "quote", "escape", "explode"):
        value = getattr(source, name)
        yield from comments(findings, f"source.{name}")
        if value != getattr(defaults, name) or name == "format":
            yield f"  {name}: {'null' if value is None else scalar(value)}"
    yield from comments(findings, "source.decimal", "source.header")
    if features.decimal != "." or features.thousands:
        yield f"  decimal: {scalar(features.decimal)}"
        yield f"  thousands: {scalar(features.thousands) if features.thousands else 'null'}"
    if source.header is not None:
        yield f"  header: [{', '.join(map(scalar, source.header))}]"
    if source.nulls != defaults.nulls:
        yield f"  nulls: [{', '.join(map(scalar, source.nulls))}]"


def feature_lines(
    features: Features, findings: Sequence[Finding], before: str = ""
) -> Iterator[str]:
    """Return the section `features`, whose findings have `before` in front of their keys."""
    yield "features:" + ("" if features.lines else " {}")
    for name, line in features.lines.items():
        yield from comments(findings, f"{before}features.{name}")
        yield f"  {name}: {line}"


def comments(findings: Sequence[Finding], *keys: str) -> Iterator[str]:
    """Return the findings of some settings as comments."""
    for found in findings:
        if found.key in keys:
            name = found.key.rpartition(".")[2]
            yield f"  # {name} {found.comment}".replace("\n", " ")


def _limit(share: float) -> float:
    """Return a limit above a share of a sample: half as much again, and two hundredths."""
    return min(1.0, math.ceil(150 * share + 2) / 100)
