"""Guards, with numbers worked out by hand."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.drift import Change, Drift, Ratio, SilenceChange
from dayahead.nightly.guards import (
    baseline_check,
    champion_check,
    coverage_check,
    data_checks,
    fall_check,
    list_checks,
    refresh_check,
    slow_check,
)
from dayahead.statistics.differences import difference_test
from support.tiny_settings import NIGHTLY

AS_USUAL = Change(0.2, 0.2)
NOON, MIDNIGHT = datetime(2026, 1, 9, 12, tzinfo=UTC), datetime(2026, 1, 10, tzinfo=UTC)


def config(**changes):
    return validated(NightlyConfig, NIGHTLY | changes, "nightly")


def drift(**changes):
    ordinary = {
        "sessions": Ratio(1.0, 1.0), "new_items": AS_USUAL, "popularity": AS_USUAL,
        "top_item": AS_USUAL, "growth": 0.1, "silence": SilenceChange(0.2, 0.2, NOON, MIDNIGHT),
    }  # fmt: skip
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
        ({"top_item": Change(0.53, 0.2)}, "max_top_item"),
        ({"new_items": Change(0.61, 0.2)}, "max_new_items"),
        ({"popularity": Change(0.85, 0.2)}, "max_popularity_drift"),
        ({"growth": 0.51}, "max_catalogue_growth"),
        ({"silence": SilenceChange(0.25, 0.2, NOON, MIDNIGHT)}, "max_silence"),
    ],
)
def test_each_limit_of_the_data_refuses_alone(changes, guard):
    found = data_checks(drift(**changes), "2026-01-09", config())
    assert refused(found) == [guard]
    assert refused(data_checks(drift(**changes), "2026-01-09", config(**{guard: None}))) == []


def test_values_at_their_limits_pass():
    """.6 is half of the way from .2 to 1, .8 is all of .8 of it; .25 is twice as far as usual."""
    edge = drift(
        sessions=Ratio(0.25, 2.0), new_items=Change(0.6, 0.2), popularity=Change(0.8, 0.0),
        top_item=Change(0.4, 0.0), growth=0.5, silence=SilenceChange(0.05, 0.0, NOON, MIDNIGHT),
    )  # fmt: skip
    assert refused(data_checks(edge, "2026-01-09", config())) == []


def test_a_refusal_says_what_by_how_much_and_what_to_do():
    """From .2 to .8 is .75 of the way to 1."""
    [_, check, *_] = data_checks(drift(new_items=Change(0.8, 0.2)), "2026-01-09", config())
    assert check.why == (
        "2026-01-09: 80.0% of the events are on items that no earlier window has, 20.0% at most "
        "before: 0.75 of the way to 1, 0.25 above nightly.max_new_items (0.5)"
    )
    assert check.advice.startswith("were the items renumbered? if the log is wrong, replace")
    assert check.value == pytest.approx(0.75)


def test_what_cannot_be_compared_passes():
    found = data_checks(drift(popularity=None, new_items=None), "2026-01-09", config())
    assert refused(found) == []
    assert [check.why for check in found if "far apart" in check.why] == [
        "2026-01-09: no two windows before are as far apart"
    ] * 2


def test_all_items_may_always_have_been_new():
    assert Change(1.0, 1.0).excess == 0


def test_without_enough_windows_nothing_is_compared():
    found = data_checks(None, "2026-01-02", config())
    assert [each.guard for each in found] == guards_of(data_checks(drift(), "w", config()))
    for check in (*found, fall_check(0.0, [0.5, 0.5], config())):
        assert (check.passed, check.checked, check.as_json()["checked"]) == (True, False, False)
    assert {each.why for each in found} == {"2026-01-02: too few windows before it to compare with"}


def test_a_guard_that_is_off_or_has_nothing_to_compare_with_is_not_checked():
    off = config(max_top_item=None, min_coverage=None)
    [check] = [each for each in data_checks(drift(), "w", off) if not each.checked]
    assert check.why.startswith("nightly.max_top_item is null; w: 20.0% of the events")
    assert not coverage_check(0.5, off).checked
    assert not slow_check("max_decline", None, "ndcg", config()).checked
    assert not compared([0.1]).checked
    lists = list_checks({"popularity_ratio_at_5": None}, config(max_list_popularity=3.0))
    assert [each.checked for each in lists] == [False]
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


def compared(own, **limits):
    published = np.full((1, len(own)), 0.5)
    difference = difference_test(published, np.array([own]))
    return champion_check(difference, len(own), "old", config(**limits))


@pytest.mark.parametrize(
    ("own", "margin", "passed"),
    [
        ([0.5] * 5, 0.0, True),
        ([0.4, 0.4, 0.4, 0.4, 0.7], 0.0, True),  # -.04 +- .2151: it may be equal
        ([0.4] * 5, 0.0, False),  # -.1 for certain
        ([0.4] * 5, 0.11, True),
    ],
)
def test_worse_than_the_published_model_is_refused_only_with_confidence(own, margin, passed):
    check = compared(own, champion_margin=margin)
    assert check.passed == passed
    assert "against the published old" in check.why
    assert "over 5 targets" in check.why


def test_the_interval_is_that_of_a_t_test():
    """Mean .02, its error by three cosines .02254, t(3, .975) = 3.18245: .02 +- .07172."""
    assert "over 5 targets -0.0517 to +0.0917" in compared([0.5, 0.5, 0.5, 0.5, 0.6]).why


def test_too_few_targets_tell_nothing():
    check = compared([0.1])
    assert check.passed
    assert "too few targets (1)" in check.why
    json.dumps(check.as_json(), allow_nan=False)


def test_a_fall_is_allowed_to_a_model_that_is_better_than_the_published_one():
    check = fall_check(0.01, [0.5] * 3, config(), is_better=True)
    assert check.passed
    assert check.why.endswith("(0.5); with confidence better than the published model")
    assert "better" not in fall_check(0.5, [0.5] * 3, config(), is_better=True).why


@pytest.mark.parametrize(("after", "passed"), [(0.2, True), (0.1901, True), (0.1899, False)])
def test_the_smoke_test_allows_a_fall_of_a_twentieth(after, passed):
    assert refresh_check(0.2, after, config()).passed == passed


@pytest.mark.parametrize(("share", "passed"), [(0.9, True), (0.89, False)])
def test_the_model_knows_the_items(share, passed):
    check = coverage_check(share, config())
    assert check.passed == passed
    assert passed or "1.00% below nightly.min_coverage" in check.why
    assert coverage_check(0.0, config(min_coverage=None)).passed


@pytest.mark.parametrize(
    ("figures", "failed"),
    [
        ({"coverage_at_5": 0.1, "gini_at_5": 0.9}, []),
        ({"coverage_at_5": 0.09, "gini_at_5": 0.9}, ["min_list_coverage"]),
        ({"coverage_at_5": 0.1, "gini_at_5": 0.91}, ["max_list_gini"]),
        ({"coverage_at_1": 1.0, "gini_at_1": 0.0}, ["min_list_coverage", "max_list_gini"]),
    ],
)
def test_lists_must_not_all_be_alike(figures, failed):
    """The metric of decisions is ndcg_at_5, so its cutoff is 5."""
    limits = config(min_list_coverage=0.1, max_list_gini=0.9)
    found = list_checks(figures, limits)
    assert [check.guard for check in found] == ["min_list_coverage", "max_list_gini"]
    assert refused(found) == failed
    assert list_checks(figures, config()) == []


@pytest.mark.parametrize(
    ("ratio", "passed", "why"),
    [
        (3.0, True, "lists of 5 show items 3.00 times as popular as those clicked; at most 3"),
        (3.25, False, "3.25 times as popular as those clicked, 0.25 above nightly.max_list_popu"),
        (None, True, "no click on a known item"),
    ],
)
def test_lists_must_not_be_much_more_popular_than_clicks(ratio, passed, why):
    figures = {"popularity_ratio_at_5": ratio, "popularity_ratio_at_1": 9.0}
    [check] = list_checks(figures, config(max_list_popularity=3.0))
    assert check.passed == passed
    assert why in check.why


@pytest.mark.parametrize(("now", "passed"), [(0.9, True), (0.89, False), (1.2, True)])
def test_a_slow_decline_may_reach_a_tenth_of_the_best_month(now, passed):
    check = slow_check("max_lead_loss", (now, 1.0), "lead", config())
    assert check.passed == passed
    assert passed or "11.0% below its best month's 1, 0.01 above nightly.max_lead_loss" in check.why
    assert slow_check("max_lead_loss", (now, 1.0), "lead", config(), is_better=True).passed
    assert slow_check("max_lead_loss", (now, 1.0), "lead", config(max_lead_loss=None)).passed


def test_a_slow_decline_needs_a_month_to_compare_with():
    assert "less than a month" in slow_check("max_decline", None, "ndcg", config()).why
    assert slow_check("max_decline", (0.0, 0.0), "ndcg", config()).passed
