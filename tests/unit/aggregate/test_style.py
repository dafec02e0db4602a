"""Colours of the report: enough contrast in every theme (WCAG 2.2, level AA)."""

import re
from importlib.resources import files

STYLE = (files("dayahead.aggregate") / "templates" / "style.css.j2").read_text()


def themes():
    """Colours by name of the light, the dark and the print theme."""
    blocks = re.findall(r":root \{([^}]*)\}", STYLE)
    return [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in blocks]


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_hand():
    assert round(contrast("#000", "#ffffff"), 2) == 21
    assert round(contrast("#777777", "#fff"), 2) == 4.48


def test_texts_and_lines_stand_out():
    assert len(themes()) == 3
    for theme in themes():
        for text in ("ink", "muted", "accent", "good", "bad"):
            assert contrast(theme[text], theme["paper"]) >= 4.5, (text, theme)
        for text in ("ink", "muted"):
            assert contrast(theme[text], theme["wash"]) >= 4.5, (text, theme)
        assert contrast(theme["second"], theme["paper"]) >= 3


def test_every_colour_is_defined_in_every_theme():
    used = {*re.findall(r"var\(--(\w+)\)", STYLE)} | {"second"}
    assert all(used <= theme.keys() for theme in themes())


def test_clicks_of_a_session_are_set_apart_on_both_sides():
    [written] = re.findall(r'\.trail li:not\(:last-child\)::after { content: "([^"]*)"', STYLE)
    # In CSS a blank after an escape ends it, and is no blank of the text.
    text = re.sub(r"\\([0-9a-f]{1,6}) ?", lambda found: chr(int(found[1], 16)), written)
    assert text == "\N{NO-BREAK SPACE}\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "


def test_narrow_screens_keep_the_metrics_that_the_caption_names():
    template = (files("dayahead.aggregate") / "templates" / "result.html.j2").read_text()
    assert template.count("{{ recall | metric }}") == 2
    assert not re.search(r'spare">\{\{ (recall|"%.4f" \| format\(\w+\.aod\[recall)', template)
