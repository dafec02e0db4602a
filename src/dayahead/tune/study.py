"""The study of a search: Optuna proposes settings, experiments evaluate them."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from dayahead.config.params import OUTSIDE
from dayahead.config.sections import Settings, without_sections
from dayahead.core.errors import ConfigError, TuneError
from dayahead.metrics.metrics import mean
from dayahead.tune.experiment import RunningExperiment
from dayahead.tune.space import Space

N_RANDOM = 6
"""Number of random trials before TPE proposes settings."""
N_UNPRUNED = 4
"""Number of finished trials before any is pruned."""
N_FAILURES = 3
"""Consecutive failures after which the search stops: settings are then hardly the cause."""
SETTINGS, EXPERIMENT, ERROR = "settings", "experiment", "error"
PLAN, REFERENCE = "plan", "reference"
DONE = (TrialState.COMPLETE, TrialState.PRUNED)
_log = logging.getLogger(__name__)


class LaggingPruner(BasePruner):
    """Stops a trial whose AOD over the windows so far is below the others' median there.

    Optuna's own MedianPruner takes the best value that the trial has reported, not the last.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether the last value that the trial has reported is below the median."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        n_windows, aod = max(trial.intermediate_values.items())
        others = [each.intermediate_values.get(n_windows) for each in complete]
        known = [each for each in others if each is not None]
        return len(complete) >= N_UNPRUNED and bool(known) and aod < float(np.median(known))


@dataclass(frozen=True)
class Plan:
    """The definition of a study, which must not change when it is continued."""

    space: Space
    metric: str
    seed: int

    def as_json(self) -> str:
        """Return everything that its trials depend on, as JSON."""
        base = without_sections(self.space.base, (*OUTSIDE, "tracking"))
        parts = {"space": self.space.as_json(), "metric": self.metric, "seed": self.seed}
        return json.dumps({**base, **parts}, sort_keys=True, default=str)


@dataclass
class Search:
    """An open study and its running experiments."""

    study: optuna.Study
    plan: Plan
    start: Callable[[int, str, Settings], RunningExperiment]
    """Starts an experiment in a slot, with a name and settings."""
    n_jobs: int = 1
    pause: float = 1.0
    """Seconds between two polls of the experiments."""
    on_trial: Callable[[FrozenTrial], None] = lambda _: None
    """Called with every trial that has ended."""
    running: dict[int, tuple[Trial, RunningExperiment]] = field(default_factory=dict)
    """Running trials by slot."""
    n_failures: int = 0
    """Number of consecutive failures in this process."""

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self.study.study_name)

    def run(self, n_trials: int) -> None:
        """Run until the study has this many trials that completed or were pruned.

        Raises:
            TuneError: the experiment with the current settings failed, or several in a row did.
        """
        try:
            if REFERENCE not in self.study.user_attrs:
                self._run_reference()
            # Those that were running when an earlier process ended.
            waiting = [*self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]
            while True:
                self._fill(waiting, n_trials)
                if not self.running:
                    return
                time.sleep(self.pause)
                self._look()
        finally:
            for _, experiment in self.running.values():
                experiment.stop()

    def _run_reference(self) -> None:
        """Evaluate the current settings, which do not count as a trial."""
        _log.info("current settings: running, to compare the trials with")
        started = time.monotonic()
        experiment = self.start(0, f"{self.name}-current", {})
        try:
            while (status := experiment.poll()) is None:
                time.sleep(self.pause)
        finally:
            experiment.stop()
        if status:
            raise TuneError(f"the current settings fail: {experiment.error()}")
        aod = mean(experiment.values(self.plan.metric))
        took = timedelta(seconds=round(time.monotonic() - started))
        _log.info(f"current settings: {self.plan.metric} {aod:.4f}, took {took}")
        self.study.set_user_attr(REFERENCE, aod)

    def _trial(self, interrupted: FrozenTrial | None) -> Trial:
        """Resume an interrupted trial under its number, or ask for a new one.

        The proposal depends on the seed, the number and the trials before, so that a killed and
        continued study proposes the same settings as one that was never killed.
        """
        number = len(self.study.trials) if interrupted is None else interrupted.number
        seed = int(np.random.SeedSequence([self.plan.seed, number]).generate_state(1)[0])
        several = self.n_jobs > 1
        # With several jobs, running trials count as bad ones, so that others try something else.
        self.study.sampler = TPESampler(n_startup_trials=N_RANDOM, constant_liar=several, seed=seed)
        if interrupted is None:
            return self.study.ask()
        return Trial(self.study, interrupted._trial_id)

    def _fill(self, waiting: list[FrozenTrial], n_trials: int) -> None:
        """Start trials in the free slots, interrupted ones first."""
        n_done = sum(trial.state in DONE for trial in self.study.get_trials(deepcopy=False))
        for slot in sorted(set(range(self.n_jobs)) - self.running.keys()):
            if not waiting and n_done + len(self.running) >= n_trials:
                return
            trial = self._trial(waiting.pop(0) if waiting else None)
            settings = self.plan.space.suggest(trial)
            name = f"{self.name}-{trial.number}"
            trial.set_user_attr(SETTINGS, settings)
            trial.set_user_attr(EXPERIMENT, name)
            _log.info(f"trial {trial.number}: started: {_named(settings)}")
            self.running[slot] = trial, self.start(slot, name, settings)

    def _look(self) -> None:
        """Poll the running experiments; finish trials that have ended, and prune bad ones."""
        for slot, (trial, experiment) in [*self.running.items()]:
            status = experiment.poll()
            values = experiment.values(self.plan.metric)
            lags = self._report(trial, values)
            if status is None and not lags:
                continue
            if status is None:
                experiment.stop()
                self.study.tell(trial, state=TrialState.PRUNED)
            elif status == 0 and values:
                self.study.tell(trial, mean(values))
            else:
                trial.set_user_attr(ERROR, experiment.error())
                self.study.tell(trial, state=TrialState.FAIL)
            del self.running[slot]
            self._ended(self.study.trials[trial.number])

    def _report(self, trial: Trial, values: Sequence[float]) -> bool:
        """Report the AOD over the windows so far; return whether the trial lags behind others."""
        known, lags = self.study.trials[trial.number].intermediate_values, False
        # Windows reported before an interruption must not be reported twice.
        for n_windows in range(len(known) + 1, len(values) + 1):
            trial.report(mean(values[:n_windows]), n_windows)
            lags = lags or trial.should_prune()
        return lags

    def _ended(self, trial: FrozenTrial) -> None:
        _log.info(trial_line(self.study, trial, self.plan.metric))
        self.on_trial(trial)
        self.n_failures = self.n_failures + 1 if trial.state == TrialState.FAIL else 0
        if self.n_failures == N_FAILURES:
            raise TuneError(
                f"{N_FAILURES} trials failed one after the other, the last with: "
                f"{trial.user_attrs[ERROR]}"
            )


def open_study(path: Path, name: str, plan: Plan) -> optuna.Study:
    """Open the study of a file, or create it.

    Raises:
        ConfigError: it exists with another space, metric, seed or settings.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=f"sqlite:///{path}",
        study_name=name,
        direction="maximize",
        load_if_exists=True,
        pruner=LaggingPruner(),
    )
    before = study.user_attrs.get(PLAN)
    if before is None:
        study.set_user_attr(PLAN, plan.as_json())
    elif before != plan.as_json():
        raise ConfigError(f"{path}: {_difference(before, plan.as_json())}")
    return study


def _difference(before: str, now: str) -> str:
    old, new = json.loads(before), json.loads(now)
    keys = [key for key in old | new if old.get(key) != new.get(key)]
    return (
        f"the study was started with other settings; different now: {', '.join(keys)}. Set them "
        f"back, or name another study with --study"
    )


def best_trial(study: optuna.Study, last: int | None = None) -> FrozenTrial | None:
    """Return the completed trial with the highest AOD, up to number `last`."""
    complete = study.get_trials(states=(TrialState.COMPLETE,))
    considered = [trial for trial in complete if last is None or trial.number <= last]
    return max(considered, key=lambda trial: trial.value or 0.0, default=None)


def trial_line(study: optuna.Study, trial: FrozenTrial, metric: str) -> str:
    """Return a line about a trial that has ended."""
    best, named = best_trial(study), _named(trial.user_attrs[SETTINGS])
    if trial.state == TrialState.FAIL:
        return f"trial {trial.number}: failed: {trial.user_attrs[ERROR]} ({named})"
    n_windows = len(trial.intermediate_values)
    ended = f", pruned after {n_windows} windows" if trial.state == TrialState.PRUNED else ""
    best_so_far = "" if best is None else f", best {best.value:.4f} (trial {best.number})"
    return f"trial {trial.number}: {metric} {trial.value:.4f}{ended}{best_so_far}: {named}"


def _named(settings: Settings) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())
