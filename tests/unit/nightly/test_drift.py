"""Drift of a window, with numbers worked out by hand."""

import numpy as np
import pytest

from dayahead.nightly.drift import Change, Drifts
from dayahead.windows.folder import WindowFolder
from support.simulated_windows import SimulatedFolder
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
    """3 sessions, after 4, 2, 6, 3; 3 of 6 events on the new items 3 and 4; before 1 of 6 on 5."""
    drift = Drifts(folder, (), 7).of(folder.windows[4])
    assert drift.sessions.value == 3 / 3.5
    assert drift.sessions.usual == 4 / 3  # the fourth day: 3 after 4, 2 and 6
    assert (drift.new_items.value, drift.new_items.usual) == (3 / 6, 1 / 6)
    assert drift.new_items.excess == pytest.approx((3 / 6 - 1 / 6) / (5 / 6))


def test_three_windows_are_needed_and_one_of_them_with_three(folder):
    drifts = Drifts(folder, (), 7)
    assert [drifts.of(window) is not None for window in folder.windows] == [False] * 4 + [True]


def test_refused_windows_are_no_measure(folder):
    windows = folder.windows
    before = Drifts(folder, {windows[1].name}, 7).before(windows[3])
    assert [each.position for each in before] == [0, 2]
    assert [each.position for each in Drifts(folder, (), 2).before(windows[3])] == [1, 2]


def of_sessions(sessions, step="days", length=1):
    """The drift of the last of windows with these sessions, all on the same items."""
    counts = np.full((len(sessions), 3), 10)
    folder = SimulatedFolder(np.array(sessions), counts, unit=step, length=length)
    return Drifts(folder, (), 7).of(folder.windows[-1])


def test_sessions_are_compared_with_those_of_the_same_weekday():
    """Weekends have a fifth. The median of 20 and 24 is 22."""
    week = [100, 100, 100, 100, 100, 20, 20]
    weeks = [*week, 100, 100, 100, 100, 100, 24, 20]
    drift = of_sessions([*weeks, 100, 100, 100, 100, 100, 22])
    assert (drift.sessions.value, drift.sessions.usual) == (1, pytest.approx(24 / 20))
    outage = of_sessions([*weeks, 20])
    assert outage.sessions.value == 0.2
    assert outage.sessions.excess == pytest.approx(5 / 1.2)


def test_before_there_are_two_weeks_the_nearer_counts_of_the_last_weekday_and_the_last_days():
    week = [100, 100, 100, 100, 100, 20, 20]
    assert of_sessions([*week, 100, 100, 100, 100, 100, 20]).sessions.value == 1
    assert of_sessions([*week, 100, 100, 100, 100, 100, 90]).sessions.value == 0.9
    assert of_sessions([*week, 100, 100, 100, 100, 50]).sessions.value == 0.5


def test_hours_are_compared_with_the_same_hour():
    """Three days of 24 hours, of which the nights are quiet; two days of windows of 12 hours."""
    hours = [10] * 8 + [100] * 16
    assert of_sessions(hours * 3, "hours").sessions.value == 1
    assert of_sessions([*hours, *hours, *[10] * 8, 10], "hours").sessions.value == 0.1
    assert of_sessions([10, 100] * 3, "hours", 12).sessions.value == 1


def test_usual_is_measured_at_the_same_distance():
    """Every day has two new items beside one of the day before: 3 days apart nothing is shared."""
    counts = np.zeros((14, 30), int)
    for number, row in enumerate(counts):
        row[number * 2 : number * 2 + 4] = 5
    folder = SimulatedFolder(np.full(14, 10), counts)
    names = [window.name for window in folder.windows]
    gap = Drifts(folder, names[10:13], 7).of(folder.windows[13])
    assert gap.new_items == Change(0.5, 1)
    assert Drifts(folder, (), 7).of(folder.windows[13]).new_items == Change(0.5, 0.5)


def test_a_gap_longer_than_all_before_it_has_no_measure():
    folder = SimulatedFolder(np.full(14, 10), np.full((14, 3), 5))
    names = [window.name for window in folder.windows]
    drift = Drifts(folder, names[5:13], 7).of(folder.windows[13])
    assert drift.new_items is None
