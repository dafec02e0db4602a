"""Durations in settings."""

import pytest

from dayahead.core.durations import microseconds_of

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("10min", 600), ("4h", 14_400), ("16d", 1_382_400), ("366d", 366 * 86_400)],
)
def test_a_number_and_a_unit(text, seconds):
    assert microseconds_of(text) == seconds * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "min",
        "0s",
        "-1s",
        "1.5h",
        "1 h",
        "1h ",
        "1H",
        "01h",
        "367d",
        "9999999d",
        "\u0661h",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration up to a year"):
        microseconds_of(text)
