"""Checks before any training: which windows take part, and whether settings and machines agree."""

import logging
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dayahead.config.baselines import MEMORY
from dayahead.config.changed_settings import unread_settings
from dayahead.config.feature_names import check_feature_names
from dayahead.config.live import LiveConfig
from dayahead.config.params import EvaluationConfig, Params, TrainingConfig, flat_settings
from dayahead.core.columns import ROLES, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import package_version, sha256_of, source_fingerprint
from dayahead.distributed.process import Process
from dayahead.train.cache_keys import PACKAGES, ROOMS
from dayahead.train.cached_windows import MISSING
from dayahead.train.event_types import EventTypes
from dayahead.train.study import Study
from dayahead.windows.folder import Window, WindowFolder
from dayahead.windows.metadata import Statistics

_log = logging.getLogger(__name__)
N_REPORTED = 5
"""Differences between copies of the project that the message lists."""


def warn_of_unread_settings(params: Params) -> None:
    """Log the changed settings that the model does not read, if any."""
    if unread := unread_settings(params):
        _log.warning(
            "train: without effect with model.architecture=%s and the other settings: %s",
            params.model.architecture,
            ", ".join(unread),
        )


def select_windows(folder: WindowFolder, params: Params) -> tuple[list[Window], list[Window]]:
    """Return the windows of a run in order, and those of them that are evaluated.

    Evaluated are all but the first, those that the feature statistics were fitted on and those
    without a target.

    Raises:
        ConfigError: a window is selected that was not kept, fewer than two are left, none is
            evaluated, none has a session to evaluate on, the profile is of a window or of
            steps that are not there, a feature is named that the windows lack, or a type of event
            is not among those of the windows or never a target.
    """
    windows = _between(folder.windows, params.window.first, params.window.last)
    _check_features(folder.statistics, params)
    fitted_on = folder.statistics.fitted_on
    evaluated = [window for window in windows[1:] if window.name not in fitted_on]
    if not evaluated:
        raise ConfigError(
            f"params.yaml: nothing to evaluate from {windows[0].name} to {windows[-1].name}: the "
            f"statistics were fitted on all of them; lower preprocess.fit_windows or set "
            f"window.last to a later one"
        )
    evaluated = _with_targets(folder, evaluated, params)
    if params.has_ticks:
        _check_tick(folder, windows, params.live)
    _check_attention_sessions(folder, evaluated, params.evaluation)
    _check_profile(folder, windows, params)
    return windows, evaluated


def _check_features(statistics: Statistics, params: Params) -> None:
    kinds = {name: feature.kind for name, feature in statistics.features.items()}
    check_feature_names(params, kinds)


def _between(kept: Sequence[Window], first: str | None, last: str | None) -> list[Window]:
    if not kept:
        raise ConfigError(
            "data/windows/windows.json: no window was kept (the file gives each reason); lower "
            "window.min_sessions in params.yaml or download a longer log"
        )
    names = [window.name for window in kept]
    for key, name in (("first", first), ("last", last)):
        if name is not None and name not in names:
            raise ConfigError(
                f"params.yaml: window.{key}: {name} is not among the {len(names)} kept windows, "
                f"{names[0]} to {names[-1]} (data/windows/windows.json lists them all, and why "
                f"some are left out)"
            )
    start = names.index(first) if first else 0
    end = names.index(last) if last else len(names) - 1
    if end <= start:
        raise ConfigError(
            f"params.yaml: window.first to window.last is {names[start]} to {names[end]}; the "
            f"protocol fits on one window and evaluates on the next, so it needs at least two"
        )
    return list(kept[start : end + 1])


def n_with_target(folder: WindowFolder, windows: Sequence[Window], params: Params) -> list[int]:
    """Count the sessions of each window that have a target among those evaluated."""
    config, types = params.evaluation, EventTypes.of(folder, params.events)
    columns = [SESSION_ID, *types.columns_of_targets(config.positions)]
    tables = (folder.read(window, config.split, columns) for window in windows)
    found = (types.targets_in(table, config.positions).counts for table in tables)
    return [int(np.count_nonzero(counts)) for counts in found]


def _with_targets(folder: WindowFolder, windows: Sequence[Window], params: Params) -> list[Window]:
    """Return the windows in which a session has a target to evaluate."""
    EventTypes.of(folder, params.events)  # weights may name unknown types too
    split, targets = params.evaluation.split, params.events.targets
    roles = ROLES if split == "all" else (split,)
    if targets:
        counts = n_with_target(folder, windows, params)
    else:
        counts = [sum(folder.n_sessions(window, role) for role in roles) for window in windows]
    found = [window for window, n in zip(windows, counts, strict=True) if n]
    if not found and targets:
        raise ConfigError(
            f"params.yaml: events.targets: no session has a {' or '.join(targets)} after its first "
            f"event in any of the {len(windows)} windows to evaluate; take longer windows or more "
            f"types, or set evaluation.split to all"
        )
    if not found:
        raise ConfigError(
            f"params.yaml: evaluation.split: {split} has no session in any of the {len(windows)} "
            f"windows to evaluate; raise window.min_sessions, or widen the split's interval in "
            f"the data set's file"
        )
    return found


def _check_tick(folder: WindowFolder, windows: Sequence[Window], config: LiveConfig) -> None:
    """Check that every window begins and ends at a tick."""
    for window in windows:
        for name, time in (("begins", window.start_time), ("ends", folder.ends[window.name])):
            if time % config.tick_microseconds:
                moment = datetime.fromtimestamp(time / 1_000_000, UTC).isoformat()
                raise ConfigError(
                    f"params.yaml: live.tick: {config.tick} does not divide the windows: "
                    f"{window.name} {name} at {moment}, which is no multiple of it since 1970; "
                    f"take one that divides both ends, such as 10min, and window.origin: calendar"
                )


def _check_attention_sessions(
    folder: WindowFolder, evaluated: list[Window], config: EvaluationConfig
) -> None:
    missing = set(config.attention_of)
    for window in evaluated if missing else ():
        missing -= set(folder.read(window, config.split, [SESSION_ID])[SESSION_ID].to_pylist())
    if missing:
        raise ConfigError(
            f"params.yaml: evaluation.attention_of: {len(missing)} of {len(config.attention_of)} "
            f"sessions are in none of the {len(evaluated)} windows evaluated with "
            f"evaluation.split: {config.split}, first {min(missing)}; take ids from results/ranks/"
        )


def fitted_windows(past: Sequence[Window], config: TrainingConfig) -> Sequence[Window]:
    """Return those of the windows so far whose train sessions the protocol fits on now."""
    n_windows = {"incremental": 1, "sliding": config.history, "from_scratch": len(past)}
    return past[-n_windows[config.protocol] :]


def _check_profile(folder: WindowFolder, windows: Sequence[Window], params: Params) -> None:
    """Check that the window to profile is fitted, in as many steps as are to be traced."""
    config, training = params.profile, params.training
    if config.window is None:
        return
    names = [each.name for each in windows[: len(windows) - (not training.fit_last)]]
    if config.window not in names:
        raise ConfigError(
            f"params.yaml: profile.window: {config.window} is not among the {len(names)} windows "
            f"that this run fits, {names[0]} to {names[-1]}"
        )
    is_joint = params.model.architecture == MEMORY and params.memory.end_to_end
    if is_joint or not params.model.has_network:
        return  # as many steps as the head finds examples, or as the sessions fill when counted
    past = fitted_windows(windows[: names.index(config.window) + 1], training)
    n_sessions = sum(folder.n_sessions(window, "train") for window in past)
    n_steps = params.network_steps(n_sessions)
    if config.first_step + config.steps > n_steps:
        raise ConfigError(
            f"params.yaml: profile.first_step: {config.first_step} and the {config.steps} steps "
            f"from it on (profile.steps) are beyond the fit of {config.window}, which has "
            f"{n_steps:,} steps; lower them"
        )


def check_consistency(process: Process, study: Study) -> None:
    """Compare the copies of the project that the processes of a run work in; a collective.

    One process of each copy reads its files.

    Raises:
        ConfigError: the copies differ; raised in every process.
    """
    own_copy = f"{socket.gethostname()}:{Path.cwd()}"
    copies = process.all_gather(own_copy)
    readers = {copy: copies.index(copy) for copy in dict.fromkeys(copies)}
    if len(readers) == 1:
        return
    is_reader = readers[own_copy] == process.rank.index
    facts = process.all_gather(_facts(process, study) if is_reader else {})
    main = facts[0]
    differences = [
        f"{name} is {main.get(name, MISSING)} in {copies[0]}, {other.get(name, MISSING)} in {copy}"
        for copy, other in ((copy, facts[rank]) for copy, rank in readers.items())
        for name in dict.fromkeys([*main, *other])
        if main.get(name, MISSING) != other.get(name, MISSING)
    ]
    if differences:
        n_more = len(differences) - N_REPORTED
        more = f" and {n_more} more" if n_more > 0 else ""
        raise ConfigError(
            f"the processes of this run work on different copies of the project: "
            f"{'; '.join(differences[:N_REPORTED])}{more}; synchronise the copies, or share one, "
            f"and run again"
        )


def _facts(process: Process, study: Study) -> dict[str, object]:
    """Everything that must be equal on all machines, by its name in messages."""
    files = sorted(study.windows.rglob("*"))
    if study.params.model.pretrained_items:
        files.append(Path(study.params.model.pretrained_items))
    return {
        **flat_settings(study.params),
        "the source in src": source_fingerprint(*ROOMS)[:12],
        **{f"the version of {name}": package_version(name) for name in PACKAGES},
        "native bfloat16 support": process.multiplies_bfloat16,
        **{str(path): sha256_of(path)[:12] for path in files if path.is_file()},
    }
