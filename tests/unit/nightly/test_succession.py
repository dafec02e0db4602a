"""Trials: enrolled once, decided once, on windows after the enrolment alone."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.config.params import load_params
from dayahead.metrics.metrics import target_metric
from dayahead.nightly.history import Entry, State
from dayahead.nightly.succession import FALSE_PROMOTIONS, Trial, champion_settings, waiting
from dayahead.statistics.intervals import half_width, over_runs, over_windows
from support.results_folders import write_results
from support.simulated_runs import simulated_runs
from support.tiny_settings import NIGHTLY, tiny_params
from support.window_folders import day

CHAMPION = {"model.d_model": 16, "training.seed": 1}
TRIAL = Trial.of("small", CHAMPION, CHAMPION | {"model.d_model": 32})
N_SESSIONS = 60
ROOT = Path(__file__).parents[3]


def config(**changes):
    return validated(NightlyConfig, NIGHTLY | {"metric": "ndcg_at_20"} | changes, "nightly")


def state_after(window):
    return State((TRIAL.enrolment([window], config()),))


def ranks(level, seed, n_windows):
    draw = np.random.default_rng(seed)
    return {
        day(number): (1 + draw.poisson(level, N_SESSIONS)).tolist() for number in range(n_windows)
    }


def decided(folder, champion, challenger, *, n_windows=9, after=0, **changes):
    """The decision on runs with the given ranks; each setting has two, or those of a list."""
    results = []
    for name, given in (("champion", champion), ("challenger", challenger)):
        runs = given if isinstance(given, list) else [given, given]
        results.append([write_results(folder / f"{name}{n}", run) for n, run in enumerate(runs)])
    evaluated = [day(number) for number in range(n_windows)]
    return TRIAL.decision(state_after(day(after)), evaluated, results, config(**changes))


def test_a_trial_is_named_by_both_settings():
    assert TRIAL.id == Trial.of("other name", CHAMPION, TRIAL.settings).id
    assert TRIAL.id != Trial.of("small", CHAMPION | {"model.d_model": 8}, TRIAL.settings).id


def test_nothing_is_decided_before_the_horizon(tmp_path):
    good, better = ranks(5, 1, 6), ranks(1, 2, 6)
    assert decided(tmp_path, good, better, n_windows=6, after=0) is None
    entry = decided(tmp_path, ranks(5, 1, 7), ranks(1, 2, 7), n_windows=7, after=0)
    assert (entry.details["outcome"], entry.window) == ("won", day(6))


def test_windows_before_the_enrolment_decide_nothing(tmp_path):
    """The challenger is better in the first 3 windows only, worse in the 6 that count."""
    champion = ranks(3, 1, 9)
    challenger = {day(n): [1] * N_SESSIONS if n < 3 else ranks(3.5, 2, 9)[day(n)] for n in range(9)}
    entry = decided(tmp_path, champion, challenger, after=2)
    assert entry.details["outcome"] == "lost"


def test_later_windows_decide_nothing_more(tmp_path):
    """Decided on the 6 windows of the horizon, whatever the run's length."""
    champion, challenger = ranks(3, 1, 12), ranks(1, 2, 12)
    short = decided(tmp_path / "a", champion, challenger, n_windows=7)
    long = decided(tmp_path / "b", champion, challenger, n_windows=12)
    assert short == long


def test_a_margin_has_to_be_passed(tmp_path):
    champion, challenger = ranks(3, 1, 7), ranks(1.5, 2, 7)
    assert decided(tmp_path, champion, challenger, n_windows=7).details["outcome"] == "won"
    entry = decided(tmp_path, champion, challenger, n_windows=7, margin=0.2)
    assert entry.details["outcome"] == "lost"
    assert "not above 0.2" in entry.why


def test_a_win_that_costs_recall_is_none(tmp_path):
    """Half the targets first, the others lost: NDCG rises from .43 to .5, recall falls to .5."""
    champion = {day(n): [4] * N_SESSIONS for n in range(7)}
    challenger = {day(n): [1] * 30 + [21] * 30 for n in range(7)}
    entry = decided(tmp_path, champion, challenger, n_windows=7)
    assert entry.details["outcome"] == "lost"
    assert "recall_at_20 falls from 1.0000 to 0.5000" in entry.why
    entry = decided(tmp_path, champion, challenger, n_windows=7, max_recall_loss=0.5)
    assert entry.details["outcome"] == "won"


def test_refused_windows_do_not_count(tmp_path):
    bad = Entry(
        kind="refused", why="", window=day(3),
        details={"windows": [day(3)], "refused_windows": [day(3)]},
    )  # fmt: skip
    results = [
        [write_results(tmp_path / name / str(n), ranks(level, n, 8)) for n in range(2)]
        for name, level in (("a", 5), ("b", 1))
    ]
    state = State((*state_after(day(0)).entries, bad))
    evaluated = [day(number) for number in range(7)]
    assert TRIAL.decision(state, evaluated, results, config()) is None
    entry = TRIAL.decision(state, [*evaluated, day(7)], results, config())
    assert entry.window == day(7)


def test_a_lead_that_is_no_larger_than_that_of_seeds_does_not_win(tmp_path):
    """The challenger is better in each window, by far; but so is one run of the champion."""
    bad, good = ranks(6, 1, 15), ranks(0.5, 2, 15)
    entry = decided(tmp_path / "a", [good, bad], [good, good], n_windows=15, horizon=14)
    assert entry.details["outcome"] == "lost"
    assert "over 14 windows and 2 seeds each" in entry.why
    assert "with an error of 0.42 %;" in entry.why
    entry = decided(tmp_path / "b", [bad, bad], [good, good], n_windows=15, horizon=14)
    assert entry.details["outcome"] == "won"


def test_the_error_is_that_of_the_enrolment(tmp_path):
    """Fewer trials a year, set afterwards, do not make a lead sufficient that was not."""
    runs = [ranks(3, 1, 7), ranks(3, 2, 7)], [ranks(2.2, 3, 7), ranks(2.2, 4, 7)]
    entry = decided(tmp_path / "a", *runs, n_windows=7, trials_per_year=1)
    assert "with an error of 0.42 %;" in entry.why
    assert entry.details["outcome"] == "lost"


def enrolled(window, error=None):
    details = {"trial": window, "challenger": "x"} | ({"error": error} if error else {})
    return Entry(kind="enrolled", why="", window=window, details=details)


def test_trials_of_the_last_year_share_the_error():
    state = State(tuple(enrolled(f"2026-0{month}-01") for month in range(1, 7)))
    assert waiting(state, "2026-12-31", config()).startswith("6 trials were enrolled in the 365")
    assert "from 2027-01-01 on" in waiting(state, "2026-12-31", config())
    assert waiting(state, "2027-01-01", config()) == ""
    assert waiting(State(()), "2026-01-01T13", config()) == ""


def test_a_larger_number_of_trials_does_not_enlarge_what_is_spent():
    spent = State(tuple(enrolled(f"2026-0{month}-01", 0.0125) for month in (1, 2)))
    for n_trials in (1, 2, 50):
        assert waiting(spent, "2026-06-01T0500", config(trials_per_year=n_trials))
    half = State(spent.entries[:1])
    assert waiting(half, "2026-06-01", config(trials_per_year=1))
    assert waiting(half, "2026-06-01", config(trials_per_year=2)) == ""


def year_of_trials(n_challengers, rules):
    """First windows of all trials of a year in which every challenger is enrolled when it may be.

    A challenger that was decided is changed a little and tries again, under another name.
    """
    start, entries, ends = (
        datetime.fromisoformat("2026-01-01"),
        [],
        dict.fromkeys(range(n_challengers), 0),
    )
    for night in range(365):
        window = f"{start + timedelta(night):%Y-%m-%d}"
        for challenger, end in ends.items():
            if night >= end and not waiting(State(tuple(entries)), window, rules):
                settings = CHAMPION | {"model.d_model": 32 + len(entries)}
                trial = Trial.of(f"{challenger} at {night}", CHAMPION, settings)
                entries.append(trial.enrolment([window], rules))
                ends[challenger] = night + rules.horizon
    return [(datetime.fromisoformat(entry.window) - start).days for entry in entries]


def wins(a, b, rules):
    """Whether B wins its trial, of each pair of [times, runs, windows], or of one pair."""
    by_window = b.mean(axis=-2) - a.mean(axis=-2)
    error = FALSE_PROMOTIONS / rules.trials_per_year
    half = half_width([over_windows(by_window), over_runs(a, b)], error)
    return by_window.mean(axis=-1) - half > rules.margin


def promotions(rules, n_years, *, seed, rho):
    """Share of simulated years in which one of five challengers wins, of which none is better.

    `seed` is the lasting deviation of a run in units of its noise in one window; `rho` is the
    autocorrelation of this noise.
    """
    random = np.random.default_rng(17)
    firsts = year_of_trials(5, rules)
    n_windows = firsts[-1] + rules.horizon
    champion = simulated_runs(random, n_years, rules.seeds, n_windows, seed=seed, rho=rho)
    has_won = np.zeros(n_years, bool)
    for first in firsts:
        a = champion[..., first : first + rules.horizon]
        b = simulated_runs(random, n_years, rules.seeds, rules.horizon, seed=seed, rho=rho)
        has_won |= wins(a, b, rules)
    return float(has_won.mean())


def test_a_year_has_as_many_trials_as_are_allowed():
    assert year_of_trials(5, config(horizon=28)) == [0, 0, 0, 0, 0, 28]
    assert year_of_trials(5, config(horizon=28, trials_per_year=8))[5:] == [28, 28, 28]
    assert len(year_of_trials(1, config(horizon=28, trials_per_year=50))) == 14


@pytest.mark.long
def test_a_simulated_trial_is_decided_as_a_real_one(tmp_path):
    """Its runs' metrics by window, as `compare` gives them, decide alike."""
    rules, outcomes = config(horizon=14), set()
    for number, level in enumerate((3, 2.5, 1.5, 1)):
        runs = [[ranks(at, [number, k, at > 2.9], 15) for k in range(2)] for at in (3, level)]
        entry = decided(tmp_path / str(number), *runs, n_windows=15, horizon=14)
        a, b = (
            np.array([[target_metric("ndcg_at_20", np.array(w)).mean() for w in [*run.values()][1:]]
                      for run in setting])
            for setting in runs
        )  # fmt: skip
        outcomes.add(entry.details["outcome"])
        assert (entry.details["outcome"] == "won") == wins(a, b, rules)
    assert "won" in outcomes
    assert len(outcomes) > 1


@pytest.mark.parametrize("seeds", [2, 3])
def test_a_year_of_equal_challengers_rarely_promotes_one(seeds):
    found = promotions(config(horizon=28, seeds=seeds), 500, seed=4.0, rho=0.0)
    assert found <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("trials", [5, 6, 10, 26])
@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_five_equal_challengers_win_in_at_most_25_of_1000_years(seeds, trials):
    """Whatever the spread over seeds and the autocorrelation of windows."""
    for horizon in (14, 28):
        rules = config(horizon=horizon, seeds=seeds, trials_per_year=trials)
        for seed, rho in ((0.0, 0.0), (0.25, 0.0), (0.25, 0.6), (1.0, 0.6), (4.0, 0.0)):
            found = promotions(rules, 4000, seed=seed, rho=rho)
            assert found <= 0.025 + 0.006, (horizon, seed, rho)  # 2.4 standard errors


@pytest.mark.slow
def test_the_settings_that_come_with_dayahead_keep_the_promise():
    rules = load_params(ROOT / "params.yaml").nightly
    assert (rules.horizon, rules.seeds, rules.trials_per_year) == (28, 3, 6)
    for seed in (0.25, 1.0, 4.0):
        assert promotions(rules, 10_000, seed=seed, rho=0.3) <= 0.025, seed


POWER = {
    (2, 28, 6): (0.04, 0.12, 0.24, 0.5, 0.72),
    (3, 14, 6): (0.06, 0.25, 0.57, 0.96, 1.0),
    (3, 28, 6): (0.19, 0.6, 0.9, 1.0, 1.0),
    (3, 28, 12): (0.09, 0.37, 0.73, 0.99, 1.0),
    (3, 56, 6): (0.39, 0.8, 0.97, 1.0, 1.0),
    (4, 28, 6): (0.46, 0.92, 1.0, 1.0, 1.0),
    (5, 28, 6): (0.66, 0.99, 1.0, 1.0, 1.0),
}
"""Share of trials that find a gain of 1, 1.5, 2, 3 and 4 times the noise of a run in a window, by
seeds, horizon and trials a year; seeds deviate by a quarter of the noise: docs/nightly-evidence.md.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "horizon", "trials"), POWER)
def test_power(seeds, horizon, trials):
    rules = config(horizon=horizon, seeds=seeds, trials_per_year=trials)
    random, found = np.random.default_rng(19), []
    for gain in (1.0, 1.5, 2.0, 3.0, 4.0):
        a, b = (simulated_runs(random, 10_000, seeds, horizon, seed=0.25) for _ in range(2))
        found.append(float(wins(a, b + gain, rules).mean()))
    assert found == pytest.approx(POWER[seeds, horizon, trials], abs=0.02)


def test_champion_settings_are_those_that_fit_models():
    settings = champion_settings(tiny_params())
    assert settings["model.features"] == []
    assert {name.partition(".")[0] for name in settings} == {
        *("model", "task", "loss", "neighbours", "linear", "memory", "training"),
    }
