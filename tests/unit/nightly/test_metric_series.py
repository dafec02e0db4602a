"""The metric over windows, with numbers worked out by hand."""

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.config.params import load_params
from dayahead.nightly.metric_series import MetricSeries, week_and_best_month
from dayahead.nightly.refresh import Refresh
from dayahead.windows.folder import WindowFolder
from support.pretended_nights import run_nights
from support.tiny_settings import NIGHTLY
from support.window_folders import day


def checked(own, baseline, accepted=None, is_better=False, **changes):
    config = validated(NightlyConfig, NIGHTLY | {"windows": 2} | changes, "nightly")
    series = MetricSeries([day(n) for n in range(len(own))], own, {"popularity": baseline})
    return {c.guard: c for c in series.checks(config, accepted or {}, is_better=is_better)}


def failed(checks):
    return [guard for guard, check in checks.items() if not check.passed]


def test_the_best_month_is_eight_windows_in_a_row_where_a_week_is_two():
    """Means of eight: of 1 to 8 4.5, of 2 to 9 5.5; the newest two are 3 and 5."""
    own = [1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 5]
    assert week_and_best_month(own, [], 2) == (4, 5.5)
    assert week_and_best_month(own[2:], [], 2) is None


def test_the_lead_is_over_the_best_baseline_of_the_same_windows():
    """Newest: 6 per 3, best month: 6 per 2."""
    assert week_and_best_month([6] * 10, [[2] * 8 + [3] * 2, [1] * 10], 2) == (2, 3)
    assert week_and_best_month([6] * 10, [[0] * 10], 2) == (0, 0)


def test_a_best_month_more_than_a_year_ago_is_forgotten():
    own = [9.0] * 8 + [5.0] * 104
    assert week_and_best_month(own, [], 2) == (5, 5)
    assert week_and_best_month(own[1:], [], 2) == (5, 5)
    assert week_and_best_month(own[:-3], [], 2) == (5, (3 * 9 + 5 * 5) / 8)


def test_a_loss_against_a_stable_baseline_is_held_though_the_median_falls_with_it():
    own = [0.3] * 10 + [0.25] * 10
    checks = checked(own, [0.2] * 20)
    assert failed(checks) == ["max_lead_loss"]
    assert "lead over the best baseline 1.25 in the newest 2 windows, 16.7%" in (
        checks["max_lead_loss"].why
    )
    assert failed(checked([0.3] * 20, [0.2] * 20)) == []


def test_a_decline_of_model_and_baselines_alike_is_held_by_the_other():
    own = [0.3 * 0.96**n for n in range(20)]
    assert failed(checked(own, [value / 2 for value in own])) == ["max_decline"]


def test_a_loss_that_was_accepted_is_evaluated_from_there_on():
    own = [0.3] * 10 + [0.25] * 20
    accepted = {"max_lead_loss": day(10), "max_decline": ""}
    assert failed(checked(own, [0.2] * 30, accepted)) == []
    assert failed(checked([*own, 0.22, 0.22], [0.2] * 32, accepted)) == ["max_lead_loss"]
    # A week and a month from the accepted window on, that window included.
    found = [checked(own[:n], [0.2] * n, accepted)["max_lead_loss"].checked for n in (19, 20)]
    assert found == [False, True]


def test_a_model_better_than_the_published_one_is_excused():
    own = [0.3] * 10 + [0.25] * 10
    check = checked(own, [0.2] * 20, is_better=True)["max_lead_loss"]
    assert (check.passed, check.is_excused) == (True, True)


def test_a_window_with_refused_data_is_no_reference_for_the_metric(root):
    run_nights(root, 5)
    folder, params = WindowFolder(root / "data" / "windows"), load_params(root / "params.yaml")
    whole, without = (
        Refresh(root, folder, params, refused, {}).series for refused in ({}, {day(2)})
    )
    assert [*whole.windows] == [day(1), day(2), day(3), day(4)]
    assert [*without.windows] == [day(1), day(3), day(4)]
    assert [*without.own] == [whole.own[0], *whole.own[2:]]
    for name, values in without.baselines.items():
        assert len(values) == 3 < len(whole.baselines[name])
