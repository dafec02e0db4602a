"""Input of a recommendation: item ids as text, and options."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dayahead.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

ColdStart = Literal["refuse", "popularity", "model"]
"""The result for a session of which the model knows no item."""
ItemIds = Sequence[int | str]
N_REASONS = 3
"""Number of the strongest parts of a score that an explanation shows."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the recommendations for one session."""

    top_k: int = 10
    """Number of items, at least 1; fewer come back where fewer may be recommended."""
    cold_start: ColdStart = "refuse"
    """The result if the model knows no item of the session or of the past: nothing, the items with
    most events in the last fitted window, or the model's."""
    exclude_seen: bool = False
    """Whether to leave out the items of the session and of the past."""
    allow: "ItemIds | pa.Array | None" = None
    """The only items that may be recommended; None for all. An array has the data set's type."""
    deny: "ItemIds | pa.Array" = ()
    """Items that are not recommended."""
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values of attributes of items, as text: only items with one of the values of each are
    recommended."""


def parse_ids(text: str) -> list[str]:
    """Split item ids at commas; an id that contains a comma is in double quotes.

    Raises:
        DataError: there is no id, or a quote is not closed.
    """
    try:
        ids = [item.strip() for line in csv.reader([text], strict=True, skipinitialspace=True)
               for item in line]  # fmt: skip
    except csv.Error as error:
        raise DataError(
            f"item ids {text!r}: not readable ({error}); expected ids separated by commas, each "
            f'with a comma in double quotes: 12,"a,b"'
        ) from None
    if not any(ids):
        raise DataError(f"item ids {text!r}: no item id; expected at least one, for example 12,7")
    return [item for item in ids if item]


def parse_where(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each attribute from texts such as brand=acme.

    Raises:
        ConfigError: one has no equals sign, or nothing before it.
    """
    found: dict[str, list[str]] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise ConfigError(f"--where {text}: expected ATTRIBUTE=VALUE, such as brand=acme")
        found.setdefault(name, []).append(value)
    return found
