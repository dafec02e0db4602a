"""What a session is asked with: item ids as text, and what answers an unknown session."""

import csv
from typing import Literal

from dayahead.core.errors import DataError

ColdStart = Literal["refuse", "popularity", "model"]
"""What answers a session none of whose items the model knows."""


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
