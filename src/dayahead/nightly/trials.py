"""Trials of a night: enrol challengers, train them alongside the champion, and decide."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dayahead.config.nightly import NightlyConfig
from dayahead.config.params import Params
from dayahead.core.errors import DayaheadError
from dayahead.nightly.history import History, State
from dayahead.nightly.pipeline import Pipeline
from dayahead.nightly.succession import Trial, champion_runs, champion_settings, waiting
from dayahead.outputs.tables import read_windows

_log = logging.getLogger(__name__)


def run_trials(
    pipeline: Pipeline,
    history: History,
    results: Path,
    params: Params,
    trials: Iterable[tuple[Trial, dict[str, Any]]],
) -> None:
    """Enrol challengers, train those whose trial is open, and decide trials that are due.

    Args:
        pipeline: pipeline of the nightly runs.
        history: history of decisions, to which enrolments and decisions are appended.
        results: results of the champion, with the seed of its nights.
        params: settings of the champion.
        trials: trials of all challengers, each with the settings that it changes.
    """
    config = params.nightly
    evaluation = params.evaluation
    rows = read_windows(results / "windows.csv", evaluation.cutoffs, evaluation.metrics)
    evaluated = [row.window for row in rows]
    others = champion_runs(champion_settings(params), config)
    trained: dict[str, Path] = {}
    in_use: set[str] = set()
    for trial, changes in trials:
        state = _enrolled(trial, history, evaluated, config)
        if not trial.is_open(state):
            continue
        own = trial.runs(changes, config)
        try:
            for name, changed in (*others, *own):
                # The champion's runs are shared by all trials.
                if name not in trained:
                    _log.info("challenger %s: training %s", trial.name, name)
                    trained[name] = pipeline.challenge(name, changed)
            champion = [results, *(trained[name] for name, _ in others)]
            challenger = [trained[name] for name, _ in own]
            entry = trial.decision(state, evaluated, (champion, challenger), config)
        except DayaheadError as error:  # a challenger's failure must not stop the nights
            _log.warning("challenger %s: %s", trial.name, error)
            entry = None
        if entry is None:
            in_use.update(name for name, _ in (*others, *own))
        else:
            history.append(entry)
    pipeline.keep_challenges(in_use)


def _enrolled(
    trial: Trial, history: History, evaluated: Sequence[str], config: NightlyConfig
) -> State:
    """Enrol a trial, unless it has been or has to wait; return the state after it."""
    state = history.read()
    if state.of_trial("enrolled", trial.id) is not None:
        return state
    if why := waiting(state, evaluated[-1], config):
        _log.warning("challenger %s is not enrolled yet: %s", trial.name, why)
        return state
    return history.append(trial.enrolment(evaluated, config))
