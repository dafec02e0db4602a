"""A year of clicks by the minute: silences that are no fault, and files that were cut."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dayahead.config.params import load_params
from support.simulated_hours import FAULTS, SITES, cut, hole, share_found, simulated_clicks

ROOT = Path(__file__).parents[3]
N_SEEDS = 3
SURE = {name: 0.9 for name in FAULTS}
SMALL = {
    "cut after 25 % of the clicks": 0.95, "cut after 50 %": 0.95, "cut after 75 %": 0.6,
    "the first 25 % missing": 0.6, "no click from 12 to 15 h": 0.2,
}  # fmt: skip
"""Of 300 clicks a day chance leaves long silences, too."""


@pytest.fixture(scope="module")
def alone():
    """The limits that come with the project, of silences alone."""
    config = load_params(ROOT / "params.yaml").nightly
    others = ("max_session_change", "max_new_items", "max_popularity_drift", "max_top_item",
              "max_catalogue_growth")  # fmt: skip
    return replace(config, **dict.fromkeys(others))


@pytest.fixture(scope="module")
def weeks():
    """Six weeks of a shop whose nights are silent and whose Sundays begin late."""
    return simulated_clicks(SITES["shop"], 0, 43)


def test_quiet_nights_and_weekends_are_no_fault(weeks, alone):
    assert weeks.refused(alone) == []


@pytest.mark.parametrize("day", [35, 38, 40])
def test_a_day_that_was_cut_is_refused_and_no_day_after_it(weeks, alone, day):
    """A Thursday, a Sunday and a Tuesday."""
    assert cut(weeks, 0.5, day).refused(alone) == [day]
    assert hole(weeks, 12, 15, day).refused(alone) == [day]
    assert cut(weeks, 0.5, day).refused(replace(alone, max_silence=None)) == []


def test_a_file_that_always_ends_at_noon_is_the_new_normal(weeks, alone):
    for day in range(30, 36):
        weeks = hole(weeks, 12, 24, day)
    assert weeks.days(0, 36).refused(alone) == [30, 31]


@pytest.mark.slow
@pytest.mark.parametrize("site", SITES)
def test_years(site, alone):
    years = [simulated_clicks(SITES[site], seed) for seed in range(N_SEEDS)]
    alarms = [len(year.refused(alone)) for year in years]
    assert np.mean(alarms) <= 1, alarms
    least = SMALL if site == "small shop" else SURE
    found = {each: np.mean([share_found(year, each, alone) for year in years]) for each in FAULTS}
    assert {name: share for name, share in found.items() if share < least.get(name, 0)} == {}, found
