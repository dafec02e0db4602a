"""Groups of targets: by hand, and as parts of the whole."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from dayahead.aggregate.slices import slicings_of, sums_by_group
from dayahead.aggregate.targets import ABSENT, Targets, popularity_ranks
from dayahead.statistics.differences import clustered_difference
from dayahead.statistics.intervals import mean_interval, over_windows
from support.simulated_runs import autocorrelated


def slicings(targets, windows, own, other):
    """Group the targets of all windows, whose numbers are given."""
    sums = []
    for window in np.unique(windows):
        rows = windows == window
        part = Targets(*(getattr(targets, each.name)[rows] for each in fields(Targets)))
        sums.append(sums_by_group(part, [own[rows], other[rows]]))
    return slicings_of(sums, ["other"])


def test_groups_by_hand():
    targets = Targets(
        n_before=np.array([1, 1, 4, 10]),
        age=np.array([-3.0, 0.5, 80, 80]),
        popularity=np.array([ABSENT, ABSENT, 10, 11]),
    )
    own, other = np.array([0.0, 1, 0.5, 0.25]), np.array([0.0, 0.5, 0.5, 0.75])
    found = slicings(targets, np.array([0, 0, 0, 1]), own, other)
    shown = {
        title: [(each.label, each.n_targets, each.value, each.others["other"]) for each in slices]
        for title, slices in ((each.title, each.slices) for each in found)
    }
    assert list(shown.values()) == [
        [
            ("1 item", 2, 0.5, 0.25),
            ("3 or 4 items", 1, 0.5, 0.5),
            ("10 items or more", 1, 0.25, 0.75),
        ],
        [
            ("new: first seen in the window", 1, 0, 0),
            ("under 1 hour", 1, 1, 0.5),
            ("3 to 7 days", 2, 0.375, 0.625),
        ],
        [
            ("the 10 most popular", 1, 0.5, 0.5),
            ("11th to 100th", 1, 0.25, 0.75),
            ("not in the window before", 2, 0.5, 0.25),
        ],
    ]
    first = found[0].slices[0]
    assert first.share == 0.5
    assert first.tests["other"].difference == 0.25
    assert first.tests["other"].ci95 is None  # of two windows


def test_the_interval_over_windows_by_hand():
    # Sums 2, 0, 3, 1, 4 of 2, 1, 3, 1, 3 targets: mean 1. Residuals are 0, -1, 0, 0, 1; their mean
    # times 5 windows by 10 targets is the error of 1.
    test = clustered_difference(np.array([2.0, 0, 3, 1, 4]), np.array([2.0, 1, 3, 1, 3]))
    assert test.difference == 1
    of_mean = over_windows(np.array([0.0, -1, 0, 0, 1]))
    half = t.ppf(0.975, 3) * of_mean.value**0.5 * 5 / 10
    assert test.ci95 == pytest.approx((1 - half, 1 + half))
    padded = clustered_difference(np.array([2.0, 0, 0, 3, 1, 4]), np.array([2.0, 1, 0, 3, 1, 3]))
    assert padded == test


def test_with_equal_windows_it_is_the_interval_of_their_means():
    means = np.array([0.1, 0.3, 0.2, 0.6, 0.1, 0.3])
    test = clustered_difference(7 * means, np.full(6, 7.0))
    assert test.ci95 == pytest.approx(mean_interval(means))


def clusters(random, rho):
    """Windows of 20 to 200 targets, whose differences have the mean 0."""
    counts = random.integers(20, 200, 14).astype(float)
    level = 0.05 * autocorrelated(random, (14,), rho)
    return counts * level + 0.3 * np.sqrt(counts) * random.normal(size=14), counts


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.6, 0.88)])
def test_the_interval_covers_differences_that_windows_have_in_common(rho, least):
    """With n - 1 degrees of freedom over independent windows .91 and .72 of 2,000."""
    random, n_covered = np.random.default_rng(5), 0
    for _ in range(2000):
        low, high = clustered_difference(*clusters(random, rho)).ci95
        n_covered += low <= 0 <= high
    assert n_covered >= least * 2000


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_groups_are_parts_of_the_whole(seed, n):
    random = np.random.default_rng(seed)
    targets = Targets(
        n_before=random.integers(1, 20, n),
        age=random.normal(30, 100, n),
        popularity=np.where(random.random(n) < 0.3, ABSENT, random.integers(1, 5000, n)),
    )
    own, other = random.random(n), random.random(n)
    for slicing in slicings(targets, random.integers(0, 7, n), own, other):
        slices = slicing.slices
        assert sum(each.n_targets for each in slices) == n
        assert sum(each.share for each in slices) == pytest.approx(1)
        assert sum(each.share * each.value for each in slices) == pytest.approx(own.mean())
        assert len({each.label for each in slices}) == len(slices)
        for each in slices:
            test = each.tests["other"]
            assert test.difference == pytest.approx(each.value - each.others["other"], abs=1e-12)
            if test.ci95:
                assert test.ci95[0] <= test.difference <= test.ci95[1]


@given(st.lists(st.integers(0, 9), max_size=30))
def test_popularity_is_one_more_than_the_items_that_have_more(counts):
    expected = [1 + sum(c > own for c in counts) if own else ABSENT for own in counts]
    assert popularity_ranks(np.array(counts, np.int64)).tolist() == expected
