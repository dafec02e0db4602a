"""Which windows are a measure for later ones."""

import numpy as np
import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.admission import admit
from support.simulated_windows import SimulatedFolder
from support.tiny_settings import NIGHTLY

USUAL = np.array([50, 30, 20])


def decided(days, nights, **changes):
    """Nights of (sessions, counts): the windows each of them refused, and those readmitted."""
    config = validated(NightlyConfig, NIGHTLY | {"windows": 7} | changes, "nightly")
    folder = SimulatedFolder(*map(np.array, zip(*days, strict=True)))
    refused, found = set(), []
    for number in range(len(days) - nights, len(days)):
        folder.n = number + 1
        admission = admit(folder, [folder.windows[-1]], refused, config)
        refused = refused - set(admission.readmitted) | set(admission.refused)
        found.append((list(admission.refused), list(admission.readmitted)))
    return found, admission


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


def test_refused_windows_that_differ_from_each_other_stay_refused():
    """A fifth, five times and a twentieth of the sessions."""
    days = [(20, USUAL), (500, USUAL), (5, USUAL)]
    found, _ = decided([HEALTHY] * 10 + days, 3)
    assert [len(refused) for refused, _ in found] == [1, 1, 1]


def test_items_that_are_others_every_day_stay_refused():
    counts = np.zeros((14, 30), int)
    counts[:10, :3] = USUAL
    for number in range(10, 14):
        counts[number, number * 2 : number * 2 + 2] = 50
    found, _ = decided([(100, row) for row in counts], 4)
    assert [len(refused) for refused, _ in found] == [1] * 4


def test_a_short_fault_refuses_itself_alone():
    found, _ = decided([HEALTHY] * 10 + [FEW] * 2 + [HEALTHY] * 8, 10)
    assert [len(refused) for refused, _ in found] == [1, 1] + [0] * 8


def test_renumbered_items_are_the_new_normal_after_three_nights():
    counts = np.zeros((16, 6), int)
    counts[:11, :3] = counts[11:, 3:] = USUAL
    found, _ = decided([(100, row) for row in counts], 5)
    assert [len(refused) for refused, _ in found] == [1, 1, 0, 0, 0]


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
