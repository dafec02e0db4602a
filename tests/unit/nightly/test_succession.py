"""Trials: enrolled once, decided once, on windows after the enrolment alone."""

import numpy as np
import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.history import Entry, State
from dayahead.nightly.succession import Trial, champion_settings
from support.results_folders import write_results
from support.tiny_settings import NIGHTLY, tiny_params
from support.window_folders import day

CHAMPION = {"training.seed": 1}
TRIAL = Trial.of("small", CHAMPION, {"training.seed": 2})
N_SESSIONS = 60


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
    pairs = zip(("champion", "challenger"), (champion, challenger), strict=True)
    results = tuple(write_results(folder / name, given) for name, given in pairs)
    evaluated = [day(number) for number in range(n_windows)]
    return TRIAL.decision(state_after(day(after)), evaluated, results, config(**changes))


def test_a_trial_is_named_by_both_settings():
    assert TRIAL.id == Trial.of("other name", CHAMPION, {"training.seed": 2}).id
    assert TRIAL.id != Trial.of("small", {"training.seed": 3}, {"training.seed": 2}).id


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
    champion, challenger = ranks(3, 1, 7), ranks(2.5, 2, 7)
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
    results = tuple(
        write_results(tmp_path / name, ranks(level, 1, 8)) for name, level in (("a", 5), ("b", 1))
    )
    state = State((*state_after(day(0)).entries, bad))
    evaluated = [day(number) for number in range(7)]
    assert TRIAL.decision(state, evaluated, results, config()) is None
    entry = TRIAL.decision(state, [*evaluated, day(7)], results, config())
    assert entry.window == day(7)


@pytest.mark.slow
def test_an_equal_challenger_wins_at_most_one_time_in_twenty(tmp_path):
    """Other seeds of the same settings; the interval's lower end leaves 2.5 %."""
    n_won = 0
    for seed in range(100):
        champion, challenger = ranks(3, [1, seed], 15), ranks(3, [2, seed], 15)
        found = decided(tmp_path / str(seed), champion, challenger, n_windows=15, horizon=14)
        n_won += found is not None and found.details["outcome"] == "won"
    assert n_won <= 5


def test_champion_settings_are_those_that_fit_models():
    settings = champion_settings(tiny_params())
    assert settings["model.features"] == []
    assert {name.partition(".")[0] for name in settings} == {
        *("model", "task", "loss", "neighbours", "linear", "memory", "training"),
    }
