"""Names that a user may have meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """Return `did you mean a or b?`, of the known names most like this one; empty without any."""
    close = difflib.get_close_matches(name, list(known), n=most)
    return f"did you mean {' or '.join(close)}?" if close else ""


def found_instead(name: str, given: Iterable[str]) -> str:
    """Return `; there is nmae instead`, of the given names the one most like that which is missing.

    Empty without any.
    """
    close = difflib.get_close_matches(name, list(given), n=1)
    return f"; there is {close[0]} instead" if close else ""
