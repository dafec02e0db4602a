"""Guards of the data over 16 days of real news clicks, of which some arrive in part."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from dayahead.config.params import load_params
from dayahead.nightly.admission import admit
from support.simulated_windows import SimulatedFolder

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow
FIRST, N_DAYS = 4, 16


@pytest.fixture(scope="module")
def clicks(real_data):
    """Sessions by day, and their events by day and item."""
    days = [csv.read_csv(path) for path in sorted((real_data / "g1-news").glob("*.csv.gz"))]
    table = pa.concat_tables(days)
    day = table["session_start"].to_numpy() // (24 * 3600 * 1000)
    day -= day.min()
    items, codes = np.unique(table["click_article_id"].to_numpy(), return_inverse=True)
    counts = np.zeros((day.max() + 1, len(items)), np.int64)
    np.add.at(counts, (day, codes), 1)
    firsts = np.unique(table["session_id"].to_numpy(), return_index=True)[1]
    return np.bincount(day[firsts])[:N_DAYS], counts[:N_DAYS]


def refused_days(sessions, counts):
    folder = SimulatedFolder(sessions, counts)
    config = load_params(ROOT / "params.yaml").nightly
    refused, found = set(), []
    for number in range(FIRST, N_DAYS):
        folder.n = number + 1
        admission = admit(folder, [folder.windows[-1]], refused, config)
        refused = refused - set(admission.readmitted) | set(admission.refused)
        found += [number] * bool(admission.refused)
    return found


def test_no_ordinary_day_is_refused(clicks):
    assert refused_days(*clicks) == []


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [5, 6, 7, 8])
def test_days_of_which_a_fifth_arrives_are_refused_and_no_day_after_them(clicks, start, n):
    """After two of them the change is taken as lasting."""
    sessions, counts = (each.copy() for each in clicks)
    draw, part = np.random.default_rng(0), slice(start, start + n)
    sessions[part], counts[part] = (draw.binomial(each[part], 0.2) for each in (sessions, counts))
    assert refused_days(sessions, counts) == list(range(start, start + min(n, 2)))
