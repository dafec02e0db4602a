"""A study: pruned, killed and continued, in parallel; experiments are pretended."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from dayahead.config.loading import read_yaml, validated
from dayahead.core.errors import ConfigError, TuneError
from dayahead.tune.space import SearchFile, checked_space
from dayahead.tune.study import (
    N_FAILURES,
    LaggingPruner,
    Plan,
    Search,
    best_trial,
    open_study,
    trial_line,
)

ROOT = Path(__file__).parents[3]
METRIC = "ndcg_at_20"
BEST_RATE = 0.003
SPACE = {
    "training.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
    "model.n_layer": {"low": 1, "high": 3},
}
N_WINDOWS = 4


class Pretended:
    """An experiment of four windows, one at each look, whose AOD is a function of its settings."""

    def __init__(self, settings, log, status=0):
        rate = settings.get("training.learning_rate", 0.05)
        self.value = 1 / (1 + abs(rate - BEST_RATE) / BEST_RATE)
        self.log = log
        self.status = status
        self.n_looks = 0
        self.is_stopped = False

    def poll(self):
        self.n_looks += 1
        if self.status:
            return self.status
        return None if self.n_looks <= N_WINDOWS else 0

    def values(self, metric):
        assert metric == METRIC
        n_windows = min(self.n_looks, N_WINDOWS)
        return [self.value + 0.01 * number for number in range(n_windows)]

    def stop(self):
        self.is_stopped = True

    def error(self):
        return "error: no"


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def plan():
    search = validated(SearchFile, {"description": "x", "space": SPACE}, "mine")
    base = read_yaml(ROOT / "params.yaml")
    return Plan(checked_space(search, base, "mine"), METRIC, 1)


def search_of(path, plan, n_jobs=1, kill_at=None, failing=()):
    """A search; `started` lists what it starts, and it dies before that of the number `kill_at`."""
    started = []

    def start(slot, name, settings):
        if len(started) == kill_at:
            raise Killed
        number = int(name.rpartition("-")[2].replace("current", "-1"))
        experiment = Pretended(settings, started, status=int(number in failing))
        started.append((name, settings, experiment))
        return experiment

    search = Search(open_study(path, "s", plan), plan, start, n_jobs, pause=0)
    search.started = started
    return search


def summary(study):
    """Every trial: state, settings, value, and AOD over its windows."""
    return [
        (each.state, each.user_attrs.get("settings"), each.value, each.intermediate_values)
        for each in study.trials
    ]


def states(study):
    return [each.state for each in study.trials]


@pytest.fixture(scope="module")
def finished(plan, tmp_path_factory):
    """A search of 20 trials."""
    search = search_of(tmp_path_factory.mktemp("finished") / "s.db", plan)
    search.run(20)
    return search


@pytest.mark.long
def test_a_study_finds_better_settings_than_the_current(finished):
    search = finished
    assert {*states(search.study)} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(search.study.trials) == 20
    best = best_trial(search.study)
    assert best.value > search.study.user_attrs["reference"] + 0.3
    assert best.value == max(each.value for each in search.study.trials)
    assert [name for name, *_ in search.started] == ["s-current", *(f"s-{n}" for n in range(20))]


def test_the_current_settings_are_measured_once_and_are_no_trial(tmp_path, plan):
    search_of(tmp_path / "s.db", plan).run(2)
    search = search_of(tmp_path / "s.db", plan)
    search.run(3)
    assert [name for name, *_ in search.started] == ["s-2"]
    assert search.study.user_attrs["reference"] == pytest.approx(1 / (1 + 0.047 / 0.003) + 0.015)


def test_a_search_speaks_before_anything_has_ended(tmp_path, plan, caplog):
    with caplog.at_level("INFO"), pytest.raises(Killed):
        search_of(tmp_path / "s.db", plan, kill_at=0).run(2)
    assert caplog.messages == ["current settings: running, to compare the trials with"]
    caplog.clear()
    with caplog.at_level("INFO"), pytest.raises(Killed):
        search_of(tmp_path / "s.db", plan, kill_at=1).run(2)
    current, started = caplog.messages[1:]
    assert current == "current settings: ndcg_at_20 0.0750, took 0:00:00"
    assert started.startswith("trial 0: started: training.learning_rate=")


@pytest.mark.parametrize(
    "kill_at", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2, 8))]
)
def test_a_study_that_is_killed_and_continued_is_the_one_that_never_was(tmp_path, plan, kill_at):
    whole = search_of(tmp_path / "whole.db", plan)
    whole.run(9)
    with pytest.raises(Killed):
        search_of(tmp_path / "s.db", plan, kill_at=kill_at).run(9)
    again = search_of(tmp_path / "s.db", plan)
    again.run(9)
    assert summary(again.study) == summary(whole.study)
    search_of(tmp_path / "s.db", plan).run(9)
    assert summary(again.study) == summary(whole.study)


def test_a_trial_whose_values_were_drawn_in_part_goes_on_under_its_number(tmp_path, plan):
    study = open_study(tmp_path / "s.db", "s", plan)
    study.set_user_attr("reference", 0.1)
    rate = study.ask().suggest_float("training.learning_rate", 1e-4, 1e-1, log=True)
    search = search_of(tmp_path / "s.db", plan)
    search.run(2)
    assert states(search.study) == [TrialState.COMPLETE] * 2
    assert search.study.trials[0].params["training.learning_rate"] == rate
    assert [*search.study.trials[0].params] == [*SPACE]


def test_windows_reported_before_a_kill_are_not_reported_again(tmp_path, plan):
    study = open_study(tmp_path / "s.db", "s", plan)
    study.set_user_attr("reference", 0.1)
    study.ask().report(0.123, 1)
    search = search_of(tmp_path / "s.db", plan)
    search.run(1)
    found = search.study.trials[0].intermediate_values
    assert found[1] == 0.123
    assert sorted(found) == [1, 2, 3, 4]


def test_trials_that_lag_behind_are_stopped_early(finished):
    search = finished
    pruned = {n for n, each in enumerate(search.study.trials) if each.state == TrialState.PRUNED}
    assert pruned
    assert min(pruned) >= 4
    for number, (_, _, experiment) in enumerate(search.started[1:]):
        assert experiment.is_stopped == (number in pruned)
        assert (len(search.study.trials[number].intermediate_values) < N_WINDOWS) == (
            number in pruned
        )


@pytest.mark.parametrize(("n_others", "is_pruned"), [(4, [False, True, True]), (3, [False] * 3)])
def test_a_trial_lags_by_its_mean_so_far_whatever_it_began_with(
    tmp_path, plan, n_others, is_pruned
):
    study = open_study(tmp_path / "s.db", "s", plan)
    for _ in range(n_others):
        other = study.ask()
        for window in (1, 2, 3):
            other.report(0.45, window)
        study.tell(other, 0.45)
    search, trial, values = Search(study, plan, None), study.ask(), [0.50, 0.30, 0.20]
    assert [search._report(trial, values[:n]) for n in (1, 2, 3)] == is_pruned


@pytest.mark.long
def test_trials_run_at_the_same_time(tmp_path, plan):
    search = search_of(tmp_path / "s.db", plan, n_jobs=3)
    most = []
    search.on_trial = lambda _: most.append(len(search.running))
    search.run(10)
    assert max(most) == 2  # besides the one that has ended
    assert len(search.study.trials) == 10
    assert all(
        each.state in {TrialState.COMPLETE, TrialState.PRUNED} for each in search.study.trials
    )


def test_what_runs_is_stopped_when_the_search_ends_early(tmp_path, plan):
    search = search_of(tmp_path / "s.db", plan, n_jobs=2, kill_at=4)
    with pytest.raises(Killed):
        search.run(10)
    ended = [each.state for each in search.study.trials]
    running = [n for n, state in enumerate(ended) if state == TrialState.RUNNING]
    assert len(running) >= 1
    for number in running[:1]:
        assert search.started[number + 1][2].is_stopped


def test_a_failed_trial_is_replaced(tmp_path, plan):
    search = search_of(tmp_path / "s.db", plan, failing={1})
    search.run(3)
    assert (
        states(search.study) == [TrialState.COMPLETE, TrialState.FAIL] + [TrialState.COMPLETE] * 2
    )
    line = trial_line(search.study, search.study.trials[1], METRIC)
    assert line.startswith("trial 1: failed: error: no (training.learning_rate=")


def test_failures_in_a_row_end_the_search(tmp_path, plan):
    search = search_of(tmp_path / "s.db", plan, failing={1, 2, 3})
    with pytest.raises(TuneError, match=r"3 trials failed one after the other.*error: no"):
        search.run(10)
    assert len(search.study.trials) == 1 + N_FAILURES


def test_current_settings_that_fail_end_the_search(tmp_path, plan):
    with pytest.raises(TuneError, match="the current settings fail: error: no"):
        search_of(tmp_path / "s.db", plan, failing={-1}).run(10)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"metric": "mrr_at_20"}, "metric"), ({"seed": 2}, "seed"), ("base", "model.d_model")],
)
def test_a_study_is_not_continued_with_other_settings(tmp_path, plan, change, named):
    open_study(tmp_path / "s.db", "s", plan)
    if change == "base":
        change = {"space": replace(plan.space, base=plan.space.base | {"model.d_model": 7})}
    with pytest.raises(ConfigError, match=f"different now: {named}. Set them back"):
        open_study(tmp_path / "s.db", "s", replace(plan, **change))


@pytest.mark.parametrize(
    "changed",
    [
        {"machine.workers": 7},
        {"tracking.sinks": []},
    ],
)
def test_settings_outside_the_study_may_change(tmp_path, plan, changed):
    open_study(tmp_path / "s.db", "s", plan)
    other = replace(plan.space, base=plan.space.base | changed)
    open_study(tmp_path / "s.db", "s", replace(plan, space=other))


def test_the_study_is_a_file_of_optuna(tmp_path, plan):
    search_of(tmp_path / "s.db", plan).run(2)
    with closing(sqlite3.connect(tmp_path / "s.db")) as file:
        assert file.execute("select count(*) from trials").fetchone() == (2,)
    assert optuna.study.get_all_study_names(f"sqlite:///{tmp_path / 's.db'}") == ["s"]


def searched(seed, n_trials=20, n_windows=14):
    """Whether a search stops its best trial, and the share of windows that it evaluates.

    A trial's windows differ by .005 besides the day's effect, half as much as the trials' AOD.
    """
    dice = np.random.default_rng(seed)
    study = optuna.create_study(direction="maximize", pruner=LaggingPruner())
    aod, of_day = dice.normal(0.3, 0.01, n_trials), dice.normal(0, 0.03, n_windows)
    n_evaluated, stopped = 0, set()
    for number in range(n_trials):
        trial = study.ask()
        values = aod[number] + of_day + dice.normal(0, 0.005, n_windows)
        for n in range(1, n_windows + 1):
            trial.report(values[:n].mean(), n)
            n_evaluated += 1
            if trial.should_prune():
                stopped.add(number)
                study.tell(trial, state=TrialState.PRUNED)
                break
        else:
            study.tell(trial, values.mean())
    return int(aod.argmax()) in stopped, n_evaluated / (n_trials * n_windows)


@pytest.mark.slow
def test_simulated_searches_seldom_stop_their_best_trial_and_save_half_of_the_windows():
    are_stopped, shares = zip(*(searched(seed) for seed in range(100)), strict=True)
    assert np.mean(are_stopped) <= 0.06
    assert np.mean(shares) < 0.5
