"""Groups of targets: by hand, and as parts of the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from dayahead.aggregate.differences import clustered_difference
from dayahead.aggregate.slices import slicings_of, sums_by_group
from dayahead.aggregate.targets import ABSENT, Targets, popularity_ranks


def slicings(targets, windows, own, other):
    """Group the targets of all windows, whose numbers are given."""
    sums = []
    for window in np.unique(windows):
        rows = windows == window
        part = Targets(targets.n_before[rows], targets.age[rows], targets.popularity[rows])
        sums.append(sums_by_group(part, [own[rows], other[rows]]))
    return slicings_of(sums, ["other"])


def test_groups_by_hand():
    targets = Targets(
        n_before=np.array([1, 1, 4, 10]),
        age=np.array([-3.0, 0.5, 80, 80]),
        popularity=np.array([ABSENT, ABSENT, 10, 11]),
    )
    own, other = np.array([0.0, 1, 0.5, 0.25]), np.array([0.0, 0.5, 0.5, 0.75])
    length, age, popularity = slicings(targets, np.array([0, 0, 0, 1]), own, other)
    shown = {
        title: [(each.label, each.n_targets, each.value, each.others["other"]) for each in slices]
        for title, slices in ((each.title, each.slices) for each in (length, age, popularity))
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
    first = length.slices[0]
    assert first.share == 0.5
    assert first.tests["other"].difference == 0.25
    assert first.tests["other"].ci95 is None  # of two windows


def test_the_interval_over_windows_by_hand():
    # Sums 2, 0, 3, 1, 4 of 2, 1, 3, 1, 3 targets: mean 1. Residuals 0, -1, 0, 0, 1 have the sum of
    # squares 2, times 5/4 is 2.5; its root by 10 targets is the error.
    test = clustered_difference(np.array([2.0, 0, 3, 1, 4]), np.array([2.0, 1, 3, 1, 3]))
    assert test.difference == 1
    half = t.ppf(0.975, 4) * 2.5**0.5 / 10
    assert test.ci95 == pytest.approx((1 - half, 1 + half))
    padded = clustered_difference(np.array([2.0, 0, 0, 3, 1, 4]), np.array([2.0, 1, 0, 3, 1, 3]))
    assert padded == test


def test_with_equal_windows_it_is_the_t_interval_of_their_means():
    means = np.array([0.1, 0.3, 0.2, 0.6, 0.0, 0.3])
    test = clustered_difference(7 * means, np.full(6, 7.0))
    half = t.ppf(0.975, 5) * means.std(ddof=1) / 6**0.5
    assert test.ci95 == pytest.approx((means.mean() - half, means.mean() + half))


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
