"""Which other columns are features: attributes of items, of sessions and users, and prices."""

import re
import unicodedata
from dataclasses import dataclass, field

from dayahead.core.columns import EVENT_TYPE, PAST_PREFIX
from dayahead.dataset.schema import RESERVED
from dayahead.inspection.finding import Finding, scalar
from dayahead.inspection.keys import CONSTANT, Keys, constant_share, item_type
from dayahead.inspection.names import name_score, words_of
from dayahead.inspection.table import Column, Table

_MAX_VALUES = 1000
"""Number of values of an attribute that is not of the item."""
_PERSONAL = frozenset(("ip", "email", "mail", "phone", "address", "agent"))
_NAMES = {*RESERVED, EVENT_TYPE, "event_id", "hour", "weekday"}


@dataclass
class Features:
    """Features by name, as they are written in the data set file."""

    lines: dict[str, str] = field(default_factory=dict)
    title: str | None = None
    findings: list[Finding] = field(default_factory=list)
    not_used: dict[str, str] = field(default_factory=dict)
    """Why other columns are none."""
    decimal: str = "."
    thousands: str | None = None


def find_features(table: Table, keys: Keys, time_columns: set[str]) -> Features:
    """Look at the columns without a role."""
    found = Features()
    if keys.event_type is not None:
        found.lines["event_type"] = f"{{kind: categorical, column: {scalar(keys.event_type)}}}"
    for name, column in table.columns.items():
        if name not in keys.used() | time_columns:
            _add(found, column, table.columns[keys.item])
    return found


def _add(found: Features, column: Column, item: Column) -> None:
    share = constant_share(column, item)
    kind, reason = _kind(column, share)
    if kind == "":
        found.not_used[column.name] = reason
        return
    if kind != "categorical" and column.kind == "number":
        add_signs(found, column)
    name = free_name(column.name, found)
    of_item = ", of_item: true" if kind == "categorical" and share >= CONSTANT else ""
    is_int = ", type: int" if kind == "categorical" and item_type(column) == "int" else ""
    found.lines[name] = f"{{kind: {kind}, column: {scalar(column.name)}{is_int}{of_item}}}"
    found.findings.append(Finding(f"features.{name}", kind + of_item[1:], "likely", reason))
    if of_item and found.title is None and _is_title(column, item):
        found.title = name
        found.findings.append(Finding("columns.title", name, "likely", "text of each item"))


def _kind(column: Column, share: float) -> tuple[str, str]:
    """Return the kind of feature, empty for none, and why."""
    n = len(column.distinct)
    if reason := not_wanted(column):
        return "", reason
    is_number = column.kind in ("int", "number")
    for role, kind in (("price", "log_number"), ("rating", "number")):
        if is_number and name_score(column.name, role):
            return kind, f"a {role} by its name"
    if column.kind == "number":
        return "", "a number of unknown meaning"
    if share >= CONSTANT:
        return "categorical", f"{n:,} values; one for each item in {share:.1%} of the items"
    if n <= _MAX_VALUES and column.kind == "text":
        return "categorical", f"{n:,} values, of events, sessions or users"
    return "", f"{n:,} values, which differ within items"


def not_wanted(column: Column) -> str:
    """Return why a column is no feature, whatever its values are; empty: it may be one."""
    if column.nulls > 0.9 or len(column.distinct) < 2:  # noqa: PLR2004
        return f"{column.nulls:.0%} empty, {len(column.distinct)} different values"
    if any(name_score(column.name, role) for role in ("user_id", "session_id")):
        return "an id of users or sessions"
    if _PERSONAL & {*words_of(column.name)}:
        return "personal data"
    if name_score(column.name, "price") and column.kind == "text":
        return "a price with signs that are no number"
    return ""


def _is_title(column: Column, item: Column) -> bool:
    is_many = len(column.distinct) > 0.5 * len(item.distinct)
    return bool(name_score(column.name, "title")) and is_many


def add_signs(found: Features, column: Column) -> None:
    """Find the decimal sign: the last of both in a value; with one alone, that of two digits."""
    texts = column.distinct.to_pylist()[:5000]
    last = [re.sub(r"\d", "", text)[-1:] for text in texts if re.search(r"[.,]\d{1,2}$", text)]
    decimal = max(set(last), key=last.count, default=".")
    other = {sign for text in texts for sign in re.findall(r"\d([., '])(?=\d{3}(?:\D|$))", text)}
    other.discard(decimal)
    found.decimal, found.thousands = decimal, min(other, default=None)
    why = f"as in {next((t for t in texts if decimal in t), texts[0])}"
    found.findings.append(Finding("source.decimal", decimal, "certain", f"{column.name}: {why}"))


def free_name(name: str, found: Features) -> str:
    """Return a name of letters, digits and _ for the feature of a column, which no other has."""
    last = name.rpartition(".")[2] or name
    last = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    plain = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"[^a-z0-9]+", "_", plain).strip("_") or "column"
    if not plain[0].isalpha() or plain in _NAMES or plain.startswith(PAST_PREFIX):
        plain = f"x_{plain}"
    names = [plain, *(f"{plain}_{number}" for number in range(2, 1000))]
    return next(each for each in names if each not in found.lines)
