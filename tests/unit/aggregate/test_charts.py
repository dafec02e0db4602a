"""Which windows are named below an axis."""

import re
from datetime import UTC, datetime, timedelta

from dayahead.aggregate.charts import curves


def named(windows):
    svg = curves("x", windows, {"y": [0.5] * len(windows)})
    axis = svg[: svg.index("matplotlib.axis_2")]
    return re.findall(r"<text[^>]*>([^<]*)</text>", axis)


def hours(n):
    start = datetime(2017, 10, 1, tzinfo=UTC)
    return [f"{start + timedelta(hours=i):%Y-%m-%dT%H}" for i in range(n)]


def test_a_week_of_days():
    assert named([f"2017-10-0{day}" for day in range(2, 8)])[:3] == ["2 Oct", "3 Oct", "4 Oct"]


def test_381_hours_are_named_by_their_midnights():
    assert named(hours(381)) == ["1 Oct", "4 Oct", "7 Oct", "10 Oct", "13 Oct", "16 Oct"]


def test_few_hours_are_named_themselves():
    labels = " ".join(named(hours(4)[1:]))
    assert "01h" in labels
    assert "03h" in labels


def test_a_gap_in_the_values_is_a_gap_in_the_line():
    windows = [f"2017-10-0{day}" for day in range(2, 7)]
    line = curves("x", windows, {"y": [1.0, 2.0, None, 1.0, 2.0]})
    whole = curves("x", windows, {"y": [1.0, 2.0, 2.0, 1.0, 2.0]})
    assert line.count("M ") == whole.count("M ") + 1
