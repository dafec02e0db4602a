"""Charts of the report: axis labels and gaps."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from dayahead.aggregate.charts import curves

DAYS = [f"2017-10-0{day}" for day in range(2, 7)]
VALUES = [1.0, 2.0, 1.0, 1.0, 2.0]


def labels(svg):
    axis = svg[: svg.index("matplotlib.axis_2")]
    return re.findall(r"<text[^>]*>([^<]*)</text>", axis)


def hours(n):
    start = datetime(2017, 10, 1, tzinfo=UTC)
    return [f"{start + timedelta(hours=i):%Y-%m-%dT%H}" for i in range(n)]


def minutes(n, step):
    start = datetime(2019, 10, 1, 2, 16, tzinfo=UTC)
    return [f"{start + timedelta(minutes=step * i):%Y-%m-%dT%H%M}" for i in range(n)]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (DAYS, "2 Oct, 3 Oct, 4 Oct, 5 Oct, 6 Oct"),
        (hours(4)[1:], "01h, 1 Oct, 02h, 1 Oct, 03h, 1 Oct"),
        (hours(381), "1 Oct, 4 Oct, 7 Oct, 10 Oct, 13 Oct, 16 Oct"),
        (minutes(8, 4), "02:16, 1 Oct, 02:24, 1 Oct, 02:32, 1 Oct, 02:40, 1 Oct"),
        (minutes(40, 4), "03:00, 1 Oct, 04:00, 1 Oct"),
        (minutes(750, 4), "2 Oct, 3 Oct"),
    ],
    ids=["days", "few hours", "many hours", "few minutes", "many minutes", "days of minutes"],
)
def test_windows_are_labelled_themselves_or_at_full_hours_or_midnight(windows, expected):
    assert ", ".join(labels(curves("x", windows, {"y": [0.5] * len(windows)}))) == expected


def test_baselines_are_drawn_behind_and_named_in_the_legend():
    alone = curves("x", DAYS, {"y": VALUES})
    beside = curves("x", DAYS, {"y": VALUES}, beside={"popularity": VALUES})
    assert beside.count("stroke-dasharray") > alone.count("stroke-dasharray")
    assert beside.index("stroke-dasharray") < beside.index("var(--accent)")
    assert ">popularity</text>" in beside
    assert ">y</text>" in beside
    assert ">y</text>" not in alone


def test_long_names_leave_room_for_the_chart():
    names = {f"{number}/{'x' * 80}/end": VALUES for number in range(4)}
    svg = curves("x", DAYS, {"y": VALUES}, beside=names)  # matplotlib warns where it has none
    assert svg.count("/end</text>") == 4
    assert ">0/" not in svg


def test_a_missing_value_leaves_a_gap_in_the_line():
    line = curves("x", DAYS, {"y": [1.0, 2.0, None, 1.0, 2.0]})
    whole = curves("x", DAYS, {"y": VALUES})
    assert line.count("M ") == whole.count("M ") + 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "backend", "expected"),
    [
        # Kernels of Jupyter hand theirs to commands that they start; the report needs none.
        ("dayahead.aggregate.charts", "module://ipympl.backend_nbagg", None),
        # In a notebook compare() leaves the user's figures as they are.
        pytest.param("dayahead.comparison.runs", "svg", "svg", marks=pytest.mark.slow),
    ],
)
def test_only_the_report_ignores_the_backend_that_the_environment_names(module, backend, expected):
    script = f"import {module}, os; print(os.environ.get('MPLBACKEND')); import matplotlib"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "MPLBACKEND": backend},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, str(expected)), done.stderr
