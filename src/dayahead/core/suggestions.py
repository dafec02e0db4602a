"""Names that a user may have meant."""

import difflib
from collections.abc import Iterable, Sequence

from dayahead.core.errors import ConfigError


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """Return `did you mean a or b?`, of the known names most like this one; empty without any."""
    close = difflib.get_close_matches(name, list(known), n=most)
    return f"did you mean {' or '.join(close)}?" if close else ""


def expected(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return `did you mean a? expected some of a, b, c`, for names that are not among the known."""
    known = list(known)
    close = did_you_mean(next(iter(unknown)), known)
    return f"{close} expected some of {', '.join(known) or 'none'}".strip()


def check_names(setting: str, given: Sequence[str], known: Iterable[str], what: str) -> None:
    """Check that a setting names only what the data set has.

    Raises:
        ConfigError: naming what is unknown, what may be meant, and what there is.
    """
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(
            f"params.yaml: {setting}: {', '.join(unknown)}: no {what} of the data set; "
            f"{expected(unknown, known)}"
        )


def found_instead(name: str, given: Iterable[str]) -> str:
    """Return `; there is nmae instead`, of the given names the one most like that which is missing.

    Empty without any.
    """
    close = difflib.get_close_matches(name, list(given), n=1)
    return f"; there is {close[0]} instead" if close else ""


def other_spelling(name: str, known: Iterable[str], at_least: float = 1.0) -> str:
    """Return the known name that this one is but for case and signs; empty for none.

    `at_least`, a similarity from 0 to 1, allows for other letters, too.
    """
    plain = {_plain(each): each for each in known}
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=at_least)
    return plain[close[0]] if close else ""


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
