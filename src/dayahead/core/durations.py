"""Durations in settings: `10s`, `15min`, `4h`, `1d`."""

import re
from typing import Final

UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
"""Seconds."""
_FORM = re.compile(rf"([1-9]\d{{0,6}})({'|'.join(UNITS)})")
LONGEST: Final = 366 * 86_400
"""Seconds; a longer duration is taken for a typing error."""


def microseconds_of(duration: str) -> int:
    """Return a duration in microseconds.

    Raises:
        ValueError: it is none, or longer than a year.
    """
    match = _FORM.fullmatch(duration)
    if match is None or int(match[1]) * UNITS[match[2]] > LONGEST:
        raise ValueError(
            "expected a duration up to a year: a whole number and s, min, h or d, such as 10min"
        )
    return int(match[1]) * UNITS[match[2]] * 1_000_000
