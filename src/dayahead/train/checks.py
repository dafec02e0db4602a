"""Checks before any training: which windows take part, and that the settings suit the data."""

from collections.abc import Sequence

import torch

from dayahead.config.params import EvaluationConfig, Params
from dayahead.core.columns import ROLES, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.windows.folder import Window, WindowFolder


def select_windows(folder: WindowFolder, params: Params) -> tuple[list[Window], list[Window]]:
    """Return the windows of a run in order, and those of them that are evaluated.

    Evaluated are all but the first and those that the feature statistics were fitted on.

    Raises:
        ConfigError: a window is selected that was not kept, fewer than two are left, none is
            evaluated, or one that is has no session to evaluate on.
    """
    windows = _between(folder.windows, params.window.first, params.window.last)
    fitted_on = folder.statistics.fitted_on
    evaluated = [window for window in windows[1:] if window.name not in fitted_on]
    if not evaluated:
        raise ConfigError(
            f"params.yaml: nothing to evaluate from {windows[0].name} to {windows[-1].name}: the "
            f"statistics were fitted on all of them; lower preprocess.fit_windows or set "
            f"window.last to a later one"
        )
    _check_split(folder, evaluated, params.evaluation.split)
    _check_attention_sessions(folder, evaluated, params.evaluation)
    return windows, evaluated


def _between(kept: Sequence[Window], first: str | None, last: str | None) -> list[Window]:
    if not kept:
        raise ConfigError(
            "data/windows/windows.json: no window was kept, and it says why for each; lower "
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


def _check_split(folder: WindowFolder, evaluated: list[Window], split: str) -> None:
    roles = ROLES if split == "all" else (split,)
    empty = [w.name for w in evaluated if not any(folder.n_sessions(w, role) for role in roles)]
    if empty:
        raise ConfigError(
            f"params.yaml: evaluation.split: {split} has no session in {len(empty)} of the "
            f"{len(evaluated)} evaluated windows, first in {empty[0]}; raise "
            f"window.min_sessions, or widen the split's interval in the data set's file"
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


def check_attention(model: NextItemModel | CountingModel) -> None:
    """Check that a model has attention weights to write.

    Raises:
        ConfigError: the architecture has none, or the task does not use them.
    """
    if isinstance(model, CountingModel):
        raise ConfigError(
            "params.yaml: evaluation.attention_of: a counting baseline has no attention; empty "
            "the list, or set model.architecture to gpt2, xlnet or bert"
        )
    if model.task.attention == "permutation":
        raise ConfigError(
            "params.yaml: evaluation.attention_of: with task.name: plm predictions come from "
            "XLNet's query stream, whose weights are not returned; empty the list, or set "
            "task.name to mlm or clm"
        )
    device = model.bias.device
    inputs = torch.ones(1, 2, model.config.d_model, device=device)
    with torch.no_grad():
        model.body.attention_weights(inputs, torch.tensor([2], device=device))
