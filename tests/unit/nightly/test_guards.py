"""Guards, with numbers worked out by hand."""

import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.drift import Change, Drift, Ratio
from dayahead.nightly.guards import (
    baseline_check,
    coverage_check,
    data_checks,
    fall_check,
    settings_check,
)
from support.tiny_settings import NIGHTLY

AS_USUAL = Change(0.2, 0.2)


def config(**changes):
    return validated(NightlyConfig, NIGHTLY | changes, "nightly")


def drift(**changes):
    ordinary = {"sessions": Ratio(1.0, 1.0), "new_items": AS_USUAL}
    return Drift(**(ordinary | changes))


def guards_of(checks):
    return [check.guard for check in checks]


def refused(checks):
    return [check.guard for check in checks if not check.passed]


@pytest.mark.parametrize(
    ("changes", "guard"),
    [
        ({"sessions": Ratio(2.01, 1.0)}, "max_session_change"),
        ({"sessions": Ratio(0.49, 1.0)}, "max_session_change"),
        ({"sessions": Ratio(0.0, 1.0)}, "max_session_change"),
        ({"sessions": Ratio(0.32, 1.5)}, "max_session_change"),
        ({"new_items": Change(0.61, 0.2)}, "max_new_items"),
    ],
)
def test_each_limit_of_the_data_refuses_alone(changes, guard):
    found = data_checks(drift(**changes), "2026-01-09", config())
    assert refused(found) == [guard]
    assert refused(data_checks(drift(**changes), "2026-01-09", config(**{guard: None}))) == []


def test_values_at_their_limits_pass():
    """.6 is half of the way from .2 to 1; .25 is twice as far as usual."""
    edge = drift(sessions=Ratio(0.25, 2.0), new_items=Change(0.6, 0.2))
    assert refused(data_checks(edge, "2026-01-09", config())) == []


def test_a_refusal_says_what_by_how_much_and_what_to_do():
    """From .2 to .8 is .75 of the way to 1."""
    [_, check] = data_checks(drift(new_items=Change(0.8, 0.2)), "2026-01-09", config())
    assert check.why == (
        "2026-01-09: 80.0% of the events are on items that no earlier window has, 20.0% at most "
        "before: 0.75 of the way to 1, 0.25 above nightly.max_new_items (0.5)"
    )
    assert check.advice.startswith("if the log is wrong (rows missing, items renumbered), replace")
    assert check.value == pytest.approx(0.75)


def test_what_cannot_be_compared_passes():
    found = data_checks(drift(new_items=None), "2026-01-09", config())
    assert refused(found) == []
    assert [check.why for check in found if "far apart" in check.why] == [
        "2026-01-09: no two windows before are as far apart"
    ]


def test_all_items_may_always_have_been_new():
    assert Change(1.0, 1.0).excess == 0


def test_without_enough_windows_nothing_is_compared():
    found = data_checks(None, "2026-01-02", config())
    assert [each.guard for each in found] == guards_of(data_checks(drift(), "w", config()))
    for check in (*found, fall_check(0.0, [0.5, 0.5], config())):
        assert (check.passed, check.checked, check.as_json()["checked"]) == (True, False, False)
    assert {each.why for each in found} == {"2026-01-02: too few windows before it to compare with"}


def test_a_guard_that_is_off_or_has_nothing_to_compare_with_is_not_checked():
    off = config(max_new_items=None, min_coverage=None)
    [check] = [each for each in data_checks(drift(), "w", off) if not each.checked]
    assert check.why.startswith("nightly.max_new_items is null; w: 20.0% of the events")
    assert not coverage_check(0.5, off).checked
    assert "checked" not in coverage_check(1.0, config()).as_json()


@pytest.mark.parametrize(("value", "passed"), [(0.10, True), (0.0999, False), (0.9, True)])
def test_the_metric_may_fall_to_half_of_its_median(value, passed):
    """The median of .1, .2 and .9 is .2."""
    assert fall_check(value, [0.9, 0.1, 0.2], config()).passed == passed


def test_a_metric_that_was_zero_does_not_fall():
    assert fall_check(0.0, [0.0, 0.0, 0.0], config()).passed


@pytest.mark.parametrize(("margin", "passed"), [(0.0, False), (0.04, False), (0.06, True)])
def test_the_best_baseline_sets_the_mark(margin, passed):
    """Own mean .2; popularity .15, transitions .25: a lack of .05."""
    baselines = {"popularity": [0.1, 0.2], "transitions": [0.3, 0.2]}
    check = baseline_check([0.1, 0.3], baselines, config(baseline_margin=margin))
    assert check.passed == passed
    assert check.value == pytest.approx(0.05)
    assert "transitions 0.2500 (-0.0500)" in check.why


@pytest.mark.parametrize(("loss", "passed"), [(0.21, True), (0.19, False)])
def test_changed_settings_are_compared_over_the_newest_windows_that_both_have(loss, passed):
    """The newest three of both are 2, 3 and 4: .4 on average, .5 before; window 5 is new."""
    own = {"1": 0.0, "2": 0.3, "3": 0.4, "4": 0.5, "5": 0.9}
    recorded = {"0": 0.9, "1": 0.9, "2": 0.5, "3": 0.4, "4": 0.6}
    check = settings_check(own, recorded, config(max_settings_loss=loss))
    assert (check.passed, check.value) == (passed, pytest.approx(0.2))
    assert "0.4000 over 3 windows, 20.0% below the 0.5000" in check.why
    assert not settings_check(own, {"0": 0.9}, config()).checked


@pytest.mark.parametrize(("share", "passed"), [(0.9, True), (0.89, False)])
def test_the_model_knows_the_items(share, passed):
    check = coverage_check(share, config())
    assert check.passed == passed
    assert passed or "1.00% below nightly.min_coverage" in check.why
    assert coverage_check(0.0, config(min_coverage=None)).passed
