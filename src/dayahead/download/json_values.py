"""Records of JSON read exactly: each value as text, however it is written."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dayahead.core.errors import SourceError
from dayahead.download.nested import ADVICE
from dayahead.download.text import MARK
from dayahead.download.values import EXACT

MISSING = object()
"""Stands for a key that is absent."""
_MAX_OBJECT = 1 << 26
_BETWEEN = re.compile(r"[\s,\[\]]*")
_SEPARATORS = re.compile(r"\]?(\[\])*\[?|,")
"""Between two objects, or before the first."""


class Number(str):
    """A number of JSON as written: text has no marks of nulls then."""

    __slots__ = ()


DECODER = json.JSONDecoder(
    parse_int=Number,
    parse_float=Number,
    parse_constant=lambda name: None if name == "NaN" else Number(name),
    strict=False,  # else control characters within text are an error
)


def record_of(line: bytes) -> dict[str, Any]:
    """Parse a line.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        found = DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object on each line")  # noqa: TRY004
    return found


def value_at(record: Any, path: str) -> Any:  # noqa: ANN401
    """Return the value of a key, else at a path; MISSING if there is none. Fields of null are null.

    A key that has dots itself comes before a path.
    """
    if record is None:
        return None
    if not isinstance(record, dict):
        return MISSING
    if path in record:
        return record[path]
    name, dot, rest = path.partition(".")
    return value_at(record[name], rest) if dot and name in record else MISSING


def rows_of(record: dict[str, Any], explode: str | None) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the record, and the element of its list, of each row.

    Raises:
        ValueError: there is no list at that path.
    """
    if explode is None:
        yield record, None
        return
    elements = value_at(record, explode)
    if elements is None or elements is MISSING:
        return
    if not isinstance(elements, list):
        raise ValueError(f"expected a list in {explode} (source.explode)")  # noqa: TRY004
    for element in elements:
        yield record, element


def cell_of(record: dict[str, Any], element: Any, column: str, explode: str | None) -> Any:  # noqa: ANN401
    """Return a row's value of a column; MISSING if there is none."""
    if explode is None or (column in record and column != explode):
        return value_at(record, column)
    if column == explode:
        return element
    if column.startswith(f"{explode}."):
        return value_at(element, column.removeprefix(f"{explode}."))
    return value_at(record, column)


def text_of(value: Any, wanted: pa.DataType) -> str | None:  # noqa: ANN401
    """Return a value as text; whole floats without a fraction, true as 1 where numbers belong.

    Raises:
        ValueError: it is a record or a list, or true or false in place of a time.
    """
    if value is None or value is MISSING:
        return None
    if isinstance(value, Number):
        return value if pa.types.is_floating(wanted) else _whole(value)
    if isinstance(value, str):
        return value if value.isascii() else _storable(value)
    if isinstance(value, bool):
        if pa.types.is_timestamp(wanted):
            raise ValueError(f"expected a time, found {str(value).lower()}")
        return str(value).lower() if pa.types.is_string(wanted) else str(int(value))
    if isinstance(value, list) and pa.types.is_list(wanted):  # of another kind: no number of it
        numbers = (each if isinstance(each, Number) else repr(each) for each in value)
        return f"[{', '.join(numbers)}]"
    raise ValueError(f"holds a {'list' if isinstance(value, list) else 'record'}. {ADVICE}")


def _whole(number: str) -> str:
    """Write a number without its fraction, if that is zero; others as they are."""
    if number.lstrip("-").isdigit():
        return "0" if number == "-0" else number
    value = float(number)
    return str(int(value)) if abs(value) < EXACT[64] and value.is_integer() else number


def _storable(text: str) -> str:
    """Replace halves of surrogate pairs, which no text may have, by escapes, and mark them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return MARK + text.encode(errors="backslashreplace").decode()
    return text


def _end_of_object(text: str, start: int, separators: str) -> int:
    if text[start] != "{" or not _SEPARATORS.fullmatch(separators):
        raise ValueError(f"expected an object, found {separators + text[start:][:60]!r}")
    return DECODER.raw_decode(text, start)[1]


def _is_open(separators: str, *, before: bool) -> bool:
    """Return whether an array is open after separators."""
    last = separators.rstrip(",")[-1:]
    return last == "[" if last else before


def objects(chunks: Iterator[str], name: str) -> Iterator[bytes]:
    """Cut arrays of objects, or objects over several lines, into a line per object.

    Raises:
        SourceError: something else is between them, an object is damaged, or an array stays open.
    """
    text, at, number, is_open = "", 0, 1, False
    while True:
        between = _BETWEEN.match(text, at)
        start = between.end() if between else at
        if start == len(text):
            if (more := next(chunks, None)) is None:
                if _is_open("".join(text[at:].split()), before=is_open):
                    raise SourceError(
                        f"{name}, after object {number - 1:,}: the array ends without its ]. The "
                        f"file was cut; fetch or copy it again"
                    )
                return
            text, at = text[at:] + more, 0
            continue
        try:
            separators = "".join(text[at:start].split())
            end = _end_of_object(text, start, separators)
        except (ValueError, RecursionError) as error:
            can_go_on = text[start] == "{" and len(text) - start < _MAX_OBJECT
            if can_go_on and (more := next(chunks, None)) is not None:
                text, at = text[at:] + more, 0
                continue
            raise SourceError(
                f"{name}, object {number:,}: not JSON: {error}. Expected one array of objects, or "
                f"an object on each line"
            ) from None
        yield (
            text[start:end].replace("\n", " ").replace("\r", " ").encode(errors="surrogatepass")
            + b"\n"
        )
        at, number, is_open = end, number + 1, _is_open(separators, before=is_open)
