"""Guards of the data over 16 days of real news clicks, of which some arrive in part."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from dayahead.config.params import load_params
from dayahead.nightly.silence import N_PARTS
from support.simulated_windows import SimulatedFolder, refused_windows

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow
FIRST, N_DAYS = 4, 16
HOLE = 4
"""A day that lacks the clicks from 5:15 to 13:25 h."""
MILLISECONDS = 24 * 3600 * 1000
"""Of a day."""


@pytest.fixture(scope="module")
def clicks(real_data):
    """Sessions by day, and their events by day and item, and by day and minute."""
    days = [csv.read_csv(path) for path in sorted((real_data / "g1-news").glob("*.csv.gz"))]
    table = pa.concat_tables(days)
    day = table["session_start"].to_numpy() // MILLISECONDS
    first = day.min()
    day -= first
    items, codes = np.unique(table["click_article_id"].to_numpy(), return_inverse=True)
    counts = np.zeros((day.max() + 1, len(items)), np.int64)
    np.add.at(counts, (day, codes), 1)
    firsts = np.unique(table["session_id"].to_numpy(), return_index=True)[1]
    minutes = np.zeros((day.max() + 1, N_PARTS), np.int64)
    minute = table["click_timestamp"].to_numpy() // 60_000 % N_PARTS
    is_same = table["click_timestamp"].to_numpy() // MILLISECONDS == day + first
    np.add.at(minutes, (day[is_same], minute[is_same]), 1)
    return np.bincount(day[firsts])[:N_DAYS], counts[:N_DAYS], minutes[:N_DAYS]


def refused_days(sessions, counts, minutes, **limits):
    folder = SimulatedFolder(sessions, counts, minutes=minutes)
    config = replace(load_params(ROOT / "params.yaml").nightly, **limits)
    return refused_windows(folder, config, FIRST)


def test_no_ordinary_day_is_refused_but_one_that_lacks_hours(clicks):
    assert refused_days(*clicks, max_silence=None) == []
    assert refused_days(*clicks) == [HOLE]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [5, 6, 7, 8])
def test_days_of_which_a_fifth_arrives_are_refused_and_no_day_after_them(clicks, start, n):
    """After two of them the change is taken as lasting."""
    sessions, counts, minutes = (each.copy() for each in clicks)
    draw, part = np.random.default_rng(0), slice(start, start + n)
    sessions[part], counts[part] = (draw.binomial(each[part], 0.2) for each in (sessions, counts))
    found = refused_days(sessions, counts, minutes, max_silence=None)
    assert found == list(range(start, start + min(n, 2)))


@pytest.mark.parametrize("hours", [(6, 24), (12, 24), (18, 24), (21, 24), (0, 9), (12, 15)])
@pytest.mark.parametrize("number", range(HOLE + 2, N_DAYS))
def test_a_day_that_lacks_hours_is_refused_by_its_silence_alone(clicks, number, hours):
    sessions, counts, minutes = (each[: number + 1].copy() for each in clicks)
    minutes[number, hours[0] * 60 : hours[1] * 60] = 0
    assert refused_days(sessions, counts, minutes) == [HOLE, number]
