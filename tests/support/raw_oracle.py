"""An oracle for `download`: the events of a raw table, read value by value in plain Python."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

START = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
NULLS = ("", "NULL")
BLANKS = " \t\n\r\v\f"
NAMES = ("session", "item", "time", "price")


class BadError(Exception):
    """The oracle cannot read a value."""


# One value each: bytes and text are parsed, null marks are None, numbers stay.


def text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise BadError from None
    if isinstance(value, float):
        return str(whole(value))
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | Decimal | date):
        raise BadError
    return str(value)


def whole(value: Any) -> int:
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > 2**53:
            raise BadError
        value = int(value)
    if isinstance(value, bytes | str):
        written = text(value).strip(BLANKS)
        if not re.fullmatch(r"-?[0-9]+", written):
            raise BadError
        value = int(written)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise BadError
    return value


def whole_id(value: Any) -> int:
    """A whole number that may have blanks around it, or been a float before it was written."""
    if isinstance(value, bytes | str):
        written = re.fullmatch(r"(-?[0-9]+)(\.0*)?", text(value).strip(" \t\r\n"))
        if written is None or (written[2] and abs(int(written[1])) > 2**53):
            raise BadError
        value = written[1]
    return whole(value)


def real(value: Any) -> float | None:
    if isinstance(value, bytes | str):
        number = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)"
        written = text(value).strip(BLANKS)
        if not re.fullmatch(number, written, re.IGNORECASE):
            raise BadError
        value = float(written)
    if not isinstance(value, int | float):
        raise BadError
    return float(value) if abs(value) < 3.4028235e38 else None


def microseconds(milliseconds: Any) -> int:
    try:
        return whole(milliseconds) * 1000
    except BadError:
        if (number := real(milliseconds)) is None:
            raise
        return round(number * 1000)


def instant(value: Any, unit: str) -> datetime:
    """A time; LATEST, which is outside, for every one that datetime does not hold."""
    if isinstance(value, bytes | str):
        value = text(value).strip(" \t\r\n\f\v\"'")
    if unit == "ms":
        try:
            return START + timedelta(microseconds=microseconds(value))
        except OverflowError:
            return LATEST
    if re.match(r"\d{5}-", written := text(value)):
        return LATEST
    if not (
        found := re.fullmatch(r"(\d{4})-(\d\d?)-(\d\d?)([T ].{8}(\..{1,6})?(Z| UTC)?)?", written)
    ):
        raise BadError
    try:
        clock = (found[4] or "").removesuffix(" UTC").removesuffix("Z")
        moment = datetime.fromisoformat(f"{found[1]}-{found[2]:0>2}-{found[3]:0>2}{clock}")
    except ValueError:
        raise BadError from None
    return moment.replace(tzinfo=UTC)


@dataclass
class Expected:
    """What a file's rows must become."""

    events: list[dict[str, Any]]
    faulty: list[int]
    """Rows, from 0, with an unreadable value."""
    outside: int = 0
    """Number of rows whose time is not from 1970 to 2199."""


def expected(rows: list[dict[str, Any]], unit: str) -> Expected:
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "session": ("session_id", text),
        "item": ("item_id", whole_id),
        "time": ("event_time", lambda value: instant(value, unit)),
        "price": ("price", real),
    }
    found = Expected([], [])
    for number, row in enumerate(rows):
        entry: dict[str, Any] = {}
        try:
            for column, (name, read) in readers.items():
                value = row[column]
                marks = (*NULLS, *(mark.encode() for mark in NULLS))
                is_null = value is None or (isinstance(value, str | bytes) and value in marks)
                entry[name] = None if is_null else read(value)
        except BadError:
            found.faulty.append(number)
            continue
        if None in (entry["session_id"], entry["item_id"], entry["event_time"]):
            continue
        if START <= entry["event_time"] < LATEST:
            found.events.append({**entry, "row": number})
        else:
            found.outside += 1
    return found
