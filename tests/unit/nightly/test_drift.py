"""Drift of a window, with numbers worked out by hand."""

import numpy as np
import pytest

from dayahead.nightly.drift import Drifts, divergence
from dayahead.windows.folder import WindowFolder
from support.window_folders import write_window_folder

DAYS = [
    [[1, 2], [1, 2], [1, 2], [1, 2]],
    [[1, 2], [2, 1]],
    [[1, 2], [2, 1], [1, 1], [2, 2], [1, 2], [1, 2]],
    [[1, 2], [2, 5], [2, 1]],
    [[3, 1], [3, 4], [2, 1]],
]


@pytest.fixture
def folder(tmp_path):
    return WindowFolder(write_window_folder(tmp_path, DAYS))


def test_the_last_of_five_days(folder):
    """3 sessions, after 4, 2, 6 and 3; 3 of 6 events on the new items 3 and 4; before 1 of 6 on 5.

    Items by day: 12 each of 1 and 2 on the first three, (2, 3, 1) of 1, 2 and 5 on the fourth.
    """
    drift = Drifts(folder, (), 7).of(folder.windows[4])
    assert drift.session_ratio == 3 / 3.5
    assert (drift.new_items.value, drift.new_items.usual) == (3 / 6, 1 / 6)
    assert drift.new_items.excess == pytest.approx((3 / 6 - 1 / 6) / (5 / 6))
    assert drift.growth == 2 / 3
    before, now = [14 / 30, 15 / 30, 1 / 30, 0, 0], [2 / 6, 1 / 6, 0, 2 / 6, 1 / 6]
    assert drift.popularity.value == pytest.approx(by_hand(before, now))
    usual = by_hand([1 / 2, 1 / 2, 0, 0, 0], [2 / 6, 3 / 6, 1 / 6, 0, 0])
    assert drift.popularity.usual == pytest.approx(usual)


def by_hand(p, q):
    """Mean of the Kullback-Leibler divergences from the middle, in bits."""
    middle = [(one + other) / 2 for one, other in zip(p, q, strict=True)]
    return sum(
        share * np.log2(share / middle[item]) / 2
        for shares in (p, q)
        for item, share in enumerate(shares)
        if share
    )


def test_three_windows_are_needed_and_one_of_them_with_three(folder):
    drifts = Drifts(folder, (), 7)
    assert [drifts.of(window) is not None for window in folder.windows] == [False] * 4 + [True]


def test_divergence_is_0_for_equal_shares_and_1_for_none_shared():
    assert divergence(np.array([0, 2, 4]), np.array([0, 3, 6])) == pytest.approx(0, abs=1e-12)
    assert divergence(np.array([2, 0]), np.array([0, 5])) == pytest.approx(1)


def test_refused_windows_are_no_measure(folder):
    windows = folder.windows
    before = Drifts(folder, {windows[1].name}, 7).before(windows[3])
    assert [each.position for each in before] == [0, 2]
    assert [each.position for each in Drifts(folder, (), 2).before(windows[3])] == [1, 2]
