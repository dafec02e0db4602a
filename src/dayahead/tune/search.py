"""A whole search: from its file, by a study and clones of the project, to a preset."""

import logging
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
from dvc.exceptions import InvalidArgumentError
from dvc.utils.hydra import apply_overrides
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.config.loading import read_yaml, validated
from dayahead.config.model import FITTED
from dayahead.config.params import Params
from dayahead.config.sections import Settings, flattened
from dayahead.core.errors import ConfigError, TuneError
from dayahead.metrics.metrics import metric_names
from dayahead.presets import add_preset, options_of
from dayahead.tracking.searches import SearchRun
from dayahead.tune.experiment import locked, prepared_clones, warn_of_uncommitted
from dayahead.tune.space import SearchFile, checked_space, read_search
from dayahead.tune.study import (
    EXPERIMENT,
    REFERENCE,
    SETTINGS,
    Plan,
    Search,
    best_trial,
    open_study,
)

OF_TRIALS = {
    "evaluation.split": "valid",
    "training.fit_last": False,
    "tracking.log_model": False,
}
"""Settings of every trial: evaluate on valid, not test; no last fit; no model in MLflow."""
MIN_IMPORTANCES = 4
"""Minimum number of trials to compute the importance of settings."""
N_NAMED = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search from the command line."""

    space: str
    """Name of a file in searches/, or a path."""
    study: str | None
    """None: named as the space."""
    n_trials: int
    n_jobs: int
    metric: str | None
    """None: NDCG at the last cutoff."""
    seed: int
    overrides: Sequence[str]
    """Settings of every trial: section.key=value, as `dvc exp run -S` takes them."""


@dataclass(frozen=True)
class Found:
    """Result of a search."""

    study: str
    metric: str
    counts: dict[str, int]
    """Number of trials by how they ended."""
    current: float
    """AOD of the current settings."""
    best: FrozenTrial
    importances: dict[str, float]
    preset: str
    """Name of the preset that holds the best settings."""


def search(options: SearchOptions, root: Path) -> Found:
    """Start or continue a search until the study has the requested number of trials.

    Raises:
        ConfigError: the space, the settings or the options break a rule, or the study was
            started with others.
        BusyError: another process works on the study.
        TuneError: experiments fail.
    """
    file = read_search(options.space, root / "searches")
    name = _study_name(options)
    validated(Params, read_yaml(root / "params.yaml"), "params.yaml")  # no setting is missing
    home = root / ".dayahead" / "tune" / name
    busy = f"the study {name}; wait for it, or name another one with --study"
    with locked(home.with_suffix(".lock"), busy) as lock, TemporaryDirectory() as scratch:
        params = Path(scratch) / "params.yaml"
        common = _write_params(file, options.overrides, root / "params.yaml", params)
        base = read_yaml(params)
        checked = validated(Params, base, "params.yaml")
        metric = _metric(options.metric, checked)
        plan = Plan(checked_space(file, base, options.space), metric, options.seed)
        study = open_study(home.with_suffix(".db"), name, plan)
        tried = {
            f"space.{key}": values.choices or f"{values.low} to {values.high}"
            for key, values in file.space.items()
        }
        record = SearchRun(checked.tracking.experiment, name, common | tried)
        warn_of_uncommitted(root, ("params.yaml", "searches/", "presets/", "dvc.lock"))
        _log.info(
            f"study {name}: {options.n_trials} trials for the highest {metric} on valid; their "
            f"output is in {home}"
        )
        with prepared_clones(root, home, lock, options.n_jobs, params) as clones:
            Search(
                study,
                plan,
                lambda slot, trial, settings: clones[slot].start(trial, settings, home),
                options.n_jobs,
                on_trial=lambda trial: _record_trial(record, study, trial, metric),
            ).run(options.n_trials)
    record.link(f"{name}-current")
    for trial in study.trials:  # again, in case the server was unreachable
        if trial.state.is_finished():
            _record_trial(record, study, trial, metric)
    found = _found(study, metric, root / "presets", common)
    record.end({"best": found.best.value or 0.0, "current": found.current, **found.importances})
    return found


def _study_name(options: SearchOptions) -> str:
    name = options.study or Path(options.space).stem
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):  # used in names of files and Git references
        raise ConfigError(
            f"--study {name}: expected letters, digits, - and _ only, such as network-2"
        )
    return name


def _write_params(
    file: SearchFile, overrides: Sequence[str], original: Path, path: Path
) -> Settings:
    """Write the params.yaml of all trials; return the settings that file and options change."""
    shutil.copyfile(original, path)
    try:
        apply_overrides(path, [text[2:] for text in options_of(flattened(file.settings))])
        apply_overrides(path, list(overrides))
    except InvalidArgumentError as error:
        raise ConfigError(f"{error}: {error.__cause__}") from None
    before, after = flattened(read_yaml(original)), flattened(read_yaml(path))
    if after["evaluation.split"] not in (before["evaluation.split"], "valid"):
        raise ConfigError(
            f"evaluation.split={after['evaluation.split']}: a search evaluates on valid alone; "
            f"leave it out"
        )
    apply_overrides(path, [text[2:] for text in options_of(OF_TRIALS)])
    return {key: value for key, value in after.items() if before.get(key) != value}


def _metric(name: str | None, params: Params) -> str:
    cutoffs = params.evaluation.cutoffs
    known = metric_names(cutoffs, params.evaluation.metrics)
    if name is not None and name not in known:
        raise ConfigError(f"--metric {name}: expected one of {', '.join(known)}")
    return name or f"ndcg_at_{max(cutoffs)}"


def _record_trial(record: SearchRun, study: optuna.Study, trial: FrozenTrial, metric: str) -> None:
    best = best_trial(study, trial.number)
    values = {metric: trial.value, "best": None if best is None else best.value}
    metrics = {name: value for name, value in values.items() if value is not None}
    record.log_trial(trial.number, trial.user_attrs[EXPERIMENT], metrics)


def _found(study: optuna.Study, metric: str, presets: Path, common: Settings) -> Found:
    best = best_trial(study)
    if best is None:
        raise TuneError("no trial ran to its end; more of them may (--trials)")
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    counts = {state.name.lower(): states.count(state) for state in dict.fromkeys(states)}
    current = study.user_attrs[REFERENCE]
    own = {key: value for key, value in common.items() if key.partition(".")[0] in FITTED}
    name = f"tuned/{study.study_name}"
    comment = (
        f"Trial {best.number} of the study {study.study_name}: {metric} {best.value:.4f} on valid, "
        f"{current:.4f} before."
    )
    add_preset(name, own | best.user_attrs[SETTINGS], comment, presets)
    importances: dict[str, float] = {}
    if states.count(TrialState.COMPLETE) >= MIN_IMPORTANCES:
        with suppress(ValueError, RuntimeError):  # raised if all trials are equal
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
            importances = {f"importance.{key}": value for key, value in found.items()}
    return Found(study.study_name, metric, counts, current, best, importances, name)


def summarize(found: Found) -> str:
    """Return what a search has found, for the terminal."""
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    best, gain = found.best, (found.best.value or 0.0) - found.current
    rows = [*best.user_attrs[SETTINGS].items()]
    lines = [
        f"study {found.study}: {counts}",
        f"{found.metric} on valid: {found.current:.4f} with the current settings, "
        f"{best.value:.4f} with those of trial {best.number} ({gain:+.4f})",
        "",
        str(tabulate(rows, ("setting", "best"), tablefmt="plain", disable_numparse=True)),
        "",
        "Written to presets/tuned.yaml. Now measure it on test, once:",
        f"  dvc exp run --temp -n {found.study}-best $(dayahead preset {found.preset})",
    ]
    if found.importances:
        named = [
            f"{key.removeprefix('importance.')} {value:.2f}"
            for key, value in list(found.importances.items())[:N_NAMED]
        ]
        lines.insert(2, f"what mattered most: {', '.join(named)}")
    return "\n".join(lines)
