"""A year of nights of three sites: false alarms, and how soon each fault is held."""

from pathlib import Path

import numpy as np
import pytest

from dayahead.config.params import load_params
from support.simulated_years import (
    FAULTS,
    FIRST,
    N_DAYS,
    SITES,
    STARTS,
    Nights,
    copy_until,
    nights_until_held,
    outage,
    simulated_year,
)

ROOT = Path(__file__).parents[3]
N_SEEDS = 2
MOST_ALARMS = 3
"""A year, on average."""


def nights_of(site, seed, last=N_DAYS):
    config = load_params(ROOT / "params.yaml").nightly
    nights = Nights(simulated_year(SITES[site], seed), config)
    nights.run(FIRST, last)
    return nights


def n_alarms(nights):
    return sum(entry.kind != "published" for entry in nights.entries)


SURE = [
    "outage, 5 % arrives", "outage, 20 % arrives", "50 % of the sessions missing",
    "renumbered items", "model 60 % worse",
]  # fmt: skip
"""Faults held within three nights on each site."""


@pytest.fixture(scope="module")
def spring():
    """The first months of a shop whose weekends have a quarter of a weekday's sessions."""
    return nights_of("shop", 0, last=100)


@pytest.mark.long
def test_months_without_a_fault_have_an_alarm_at_most(spring):
    assert n_alarms(spring) <= 1


@pytest.mark.parametrize("fault", SURE)
def test_faults_of_a_shop_are_held_within_three_nights(spring, fault):
    found = nights_until_held(spring, fault, 95, 5)
    assert found is not None
    assert found <= 3


def test_the_nights_after_an_outage_are_published(spring):
    broken = copy_until(spring, outage(spring.year.until(120), 95, 0.2), 95)
    assert broken.run(95, 120) == ["refused"] * 2 + ["published"] * 23


def test_a_fault_leaves_the_healthy_year_as_it_is(spring):
    before = spring.year.sessions.copy(), spring.year.counts.sum(), spring.year.own.copy()
    for fault in FAULTS:
        nights_until_held(spring, fault, 95, 1)
    np.testing.assert_array_equal(spring.year.sessions, before[0])
    assert spring.year.counts.sum() == before[1]
    np.testing.assert_array_equal(spring.year.own, before[2])


@pytest.mark.slow
@pytest.mark.parametrize("site", SITES)
def test_years(site):
    alarms, held = [], {fault: [] for fault in SURE}
    for seed in range(N_SEEDS):
        nights = nights_of(site, seed)
        alarms.append(n_alarms(nights))
        for fault in SURE:
            held[fault].append(nights_until_held(nights, fault, STARTS[seed], 3))
    assert np.mean(alarms) <= MOST_ALARMS, alarms
    assert {fault: nights for fault, nights in held.items() if None in nights} == {}
