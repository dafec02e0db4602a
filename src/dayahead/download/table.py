"""What every kind of table offers, and errors of their libraries in one line."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from dayahead.core.errors import SourceError, UnreachableError
from dayahead.core.redaction import redacted
from dayahead.download.statements import Reading

_NOISE = re.compile(r"\x1b\[[\d;]*m|\[libpq\] |\n *\^+|\s*Query was: .*?(?=SQLSTATE|$)", re.DOTALL)
"""Colours, names of libraries, pointers into a line, and the query in messages about it."""


@dataclass(frozen=True)
class Table:
    """An opened table or query of a warehouse."""

    schema: pa.Schema
    """Columns as they are read."""
    read: Callable[[Reading], Iterator[pa.RecordBatch]]
    """Reads rows of some columns, in their order. Raises SourceError where the query fails, and
    UnreachableError where the connection is lost."""
    version: str = ""
    """Text that changes with the rows; empty: unknown until they are read."""


def library(name: str, extra: str) -> Any:  # noqa: ANN401
    """Import a library that only some sources need.

    Raises:
        SourceError: it is not installed; names the extra that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise SourceError(
            f"source.urls: needs the package {error.name}: pip install 'dayahead[{extra}]'"
        ) from None


@contextmanager
def opening(shown: str, advice: str) -> Iterator[None]:
    """Raise UnreachableError for what a library raises in this block."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # noqa: BLE001 - every library raises its own kinds
        raise UnreachableError(f"{shown}: cannot be opened: {reason(error)}. {advice}") from None


def reason(error: Exception) -> str:
    """Return a library's message in one line, without secrets."""
    return redacted(" ".join(_NOISE.sub(" ", str(error)).split()).rstrip("."))
