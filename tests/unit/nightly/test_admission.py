"""Which windows are a measure for later ones."""

import numpy as np
import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.admission import admit
from support.simulated_windows import SimulatedFolder, admissions
from support.tiny_settings import NIGHTLY

USUAL = np.array([50, 30, 20])


def decided(days, nights, **changes):
    """Nights of (sessions, counts): the windows each of them refused, and those readmitted."""
    config = validated(NightlyConfig, NIGHTLY | {"windows": 7} | changes, "nightly")
    folder = SimulatedFolder(*map(np.array, zip(*days, strict=True)))
    found = admissions(folder, config, len(days) - nights)
    return [(list(each.refused), list(each.readmitted)) for each in found], found[-1]


HEALTHY = (100, USUAL)
FEW = (20, USUAL // 5)


def test_a_change_that_lasts_is_the_new_normal_and_readmits_the_windows_before():
    found, _ = decided([HEALTHY] * 10 + [FEW] * 5, 5)
    first, second = "2026-01-11", "2026-01-12"
    assert found == [([first], []), ([second], []), ([], [first, second]), ([], []), ([], [])]


def test_the_check_that_is_excused_says_why():
    _, admission = decided([HEALTHY] * 10 + [FEW] * 3, 3)
    [check] = [check for check in admission.checks if check.is_excused]
    assert (check.guard, check.passed, check.advice) == ("max_session_change", True, "")
    assert check.why.endswith(
        "as usual beside 2026-01-11 to 2026-01-12, refused for the same: taken as the new normal"
    )


@pytest.mark.parametrize("readmit_after", [None, 4])
def test_the_setting_says_after_how_many(readmit_after):
    found, _ = decided([HEALTHY] * 10 + [FEW] * 4, 4, readmit_after=readmit_after)
    assert [bool(refused) for refused, _ in found] == [True] * 3 + [readmit_after is None]


def shifted(by):
    """A day on other items."""
    return 100, np.roll(np.append(USUAL, [0] * 20), by)


@pytest.mark.parametrize(
    ("days", "refused"),
    [
        # A fifth, five times and a twentieth of the sessions.
        ([(20, USUAL), (500, USUAL), (5, USUAL)], [1, 1, 1]),
        ([FEW] * 2 + [HEALTHY] * 8, [1, 1] + [0] * 8),
        ([shifted(by) for by in (4, 8, 12, 16)], [1] * 4),
        ([shifted(10)] * 5, [1, 1, 0, 0, 0]),
    ],
    ids=["differ from each other", "a short fault", "other items every day", "renumbered items"],
)
def test_windows_are_refused_until_three_nights_agree(days, refused):
    n_items = max(len(counts) for _, counts in days)
    padded = [(n, np.pad(row, (0, n_items - len(row)))) for n, row in [HEALTHY] * 10 + days]
    found, _ = decided(padded, len(days))
    assert [len(names) for names, _ in found] == refused


def test_windows_of_one_night_that_agree_enter_together():
    config = validated(NightlyConfig, NIGHTLY | {"windows": 7}, "nightly")
    folder = SimulatedFolder(*map(np.array, zip(*[HEALTHY] * 10, *[FEW] * 3, strict=True)))
    admission = admit(folder, folder.windows[10:], set(), config)
    assert (admission.refused, admission.readmitted) == ([], [])


def test_a_corrected_window_is_a_measure_again():
    config = validated(NightlyConfig, NIGHTLY | {"windows": 7}, "nightly")
    folder = SimulatedFolder(*map(np.array, zip(*[HEALTHY] * 12, strict=True)))
    corrected, new = folder.windows[10:]
    admission = admit(folder, [corrected, new], {corrected.name}, config)
    assert (admission.refused, admission.readmitted) == ([], [corrected.name])
