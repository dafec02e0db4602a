"""The longest silence of a window, by hand and by a plain search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.core.errors import WindowError
from dayahead.nightly.admission import admit
from dayahead.nightly.drift import Drifts
from dayahead.nightly.silence import Silence, by_chance, longest_silence
from dayahead.windows.folder import WindowFolder
from support.builders import dataset_config, events, session
from support.simulated_windows import SimulatedFolder
from support.tiny_settings import NIGHTLY
from support.window_folders import write_window_folder

OTHERS = [np.array(each) for each in ([4, 0, 0, 2, 2, 2], [1, 0, 1, 1, 5, 2], [5, 0, 0, 1, 2, 2])]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # Shares of the last two parts: 4 of 10, 7 of 10, 4 of 10.
        ([1, 1, 1, 1, 0, 0], Silence(0.4, 4 / 6, 1.0)),
        # Of the first: 4, 1 and 5 of 10; of the fifth: 2, 5 and 2.
        ([0, 1, 1, 1, 0, 1], Silence(0.4, 0.0, 1 / 6)),
        # The second and third are as good as silent in the others.
        ([1, 0, 0, 1, 1, 1], Silence(0.0, 1 / 6, 3 / 6)),
        ([1] * 6, Silence(0.0)),
        ([0] * 6, Silence(1.0, 0.0, 1.0)),
    ],
)
def test_a_silence_is_measured_by_the_clicks_that_others_have_in_it(parts, expected):
    found = longest_silence(np.array(parts), OTHERS)
    assert found.share == pytest.approx(expected.share)
    assert (found.start, found.end) == (expected.start, expected.end)


def test_windows_without_a_click_are_no_measure():
    empty = np.zeros(6, int)
    assert longest_silence(empty, []) == longest_silence(empty, [empty]) == Silence(0.0)
    assert longest_silence(empty, [OTHERS[0], empty]).share == 1


@given(data=st.data(), n=st.integers(1, 12))
def test_it_is_the_best_of_all_stretches_without_a_click(data, n):
    row = st.lists(st.integers(0, 3), min_size=n, max_size=n).map(np.array)
    parts = data.draw(row)
    others = data.draw(st.lists(row.filter(np.any), min_size=1, max_size=4))
    stretches = [(a, b) for a in range(n) for b in range(a + 1, n + 1) if not parts[a:b].any()]
    shares = [np.median([each[a:b].sum() / each.sum() for each in others]) for a, b in stretches]
    assert longest_silence(parts, others).share == pytest.approx(max(shares, default=0))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 30, 1000])
def test_chance_exceeds_it_in_one_of_a_thousand_windows_at_most(n):
    draw = np.random.default_rng(n)
    times = np.sort(draw.random((20_000, n)), axis=1)
    longest = np.diff(times, axis=1, prepend=0, append=1).max(axis=1)
    assert (longest > by_chance(n)).mean() <= 0.002
    assert (longest > by_chance(n) / 2).mean() > 0.002
    assert by_chance(0) == 1


def test_clicks_are_counted_in_equal_parts_of_the_window(tmp_path):
    """Sessions begin at 0 and 1 s and click every 10 s; a day has 8640 parts of 10 s."""
    folder = WindowFolder(write_window_folder(tmp_path, [[[1, 2, 3], [1, 2]]]))
    counts = folder.clicks_by_part(folder.windows[0], "train", 8640)
    assert counts[:4].tolist() == [2, 2, 1, 0]
    assert counts.sum() == 5
    assert folder.clicks_by_part(folder.windows[0], "train", 1).tolist() == [5]
    folder.path(folder.windows[0], "train").unlink()
    with pytest.raises(WindowError, match="not readable"):
        folder.clicks_by_part(folder.windows[0], "train", 1)


def hours(*busy):
    return np.repeat(busy, 1440 // len(busy))


WEEKDAY, SUNDAY = hours(0, 10, 10, 0), hours(0, 0, 10, 10)


def silences(days, length=1):
    n = len(days)
    folder = SimulatedFolder(
        np.full(n, 1000), np.full((n, 3), 9), length=length, minutes=np.array(days)
    )
    return Drifts(folder, (), 7).of(folder.windows[-1]).silence


def test_a_sunday_is_compared_with_sundays_once_there_are_two():
    week = [WEEKDAY] * 6 + [SUNDAY]
    assert silences(week * 3).value == 0
    # Half of a weekday's clicks, none at all of a Sunday's.
    assert silences([*week, *week, *[WEEKDAY] * 7]).value == 0.5
    assert silences([*week, SUNDAY]).value == 0.5


def test_what_is_usual_is_the_longest_of_the_windows_before_or_that_of_chance():
    days = [WEEKDAY] * 4 + [hours(0, 0, 10, 0)] + [WEEKDAY] * 2
    cut = silences([*days, hours(0, 10, 0, 0)])
    assert (cut.value, cut.usual, cut.excess) == (0.5, 0.5, 0)
    assert silences([WEEKDAY] * 8).usual == by_chance(1000)


SPREAD = [f"{hour:02}:{minute}" for hour in range(8, 24) for minute in (10, 25, 40, 55)]


@pytest.mark.long
def test_a_file_cut_in_the_middle_of_a_busy_day_is_refused(run):
    """Twice as many sessions as on other days until 14:25, none after it."""
    rows = []
    for day in range(1, 9):
        times = SPREAD if day < 8 else [time for time in SPREAD if time <= "14:25"] * 2
        for n, time in enumerate(times):
            rows += session(f"{day}-{n}", [n % 7, n % 5 + 10, n % 3], f"2026-01-0{day} {time}")
    folder = run(events(rows), dataset_config(), log_end="2026-01-09")
    config = validated(NightlyConfig, NIGHTLY | {"windows": 7}, "nightly")
    found = admit(folder, folder.windows[-1:], (), config)
    assert found.refused == ["2026-01-08"]
    [check] = [each for each in found.checks if not each.passed]
    assert check.guard == "max_silence"
    assert check.why.startswith(
        "2026-01-08: no click from 2026-01-08T14:28Z to 2026-01-09T00:00Z, where others have 59.4% "
    )
    assert check.advice.startswith("was the file cut, or are hours missing? if the log is wrong")
