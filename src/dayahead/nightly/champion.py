"""The champion's settings: those of params.yaml, which change only by a trial or by `--adopt`."""

from pathlib import Path
from typing import Any

from dayahead.config.params import Params, checked_params, load_params
from dayahead.core.errors import ConfigError
from dayahead.metrics.metrics import metric_names
from dayahead.nightly.history import NO_TICK, Entry, State
from dayahead.nightly.pipeline import challenger_params
from dayahead.nightly.succession import Trial, champion_settings


def nightly_params(root: Path) -> Params:
    """Read params.yaml, and check that its settings suit nightly runs.

    Raises:
        ConfigError: the settings do not.
    """
    params = load_params(root / "params.yaml")
    metric = params.nightly.metric
    known = metric_names(params.evaluation.cutoffs, params.evaluation.metrics)
    if metric not in known:
        raise ConfigError(
            f"params.yaml: nightly.metric: {metric} is not among the metrics at "
            f"evaluation.cutoffs {list(params.evaluation.cutoffs)}; add its cutoff there, or "
            f"choose one of {', '.join(known)}"
        )
    if params.nightly.list_limits and params.evaluation.lists < params.nightly.cutoff:
        raise ConfigError(
            f"params.yaml: nightly.{next(iter(params.nightly.list_limits))}: evaluation.lists is "
            f"{params.evaluation.lists}, and lists of {params.nightly.cutoff} items are needed, "
            f"the cutoff of nightly.metric; raise it, or set the limit to null"
        )
    if params.window.last is not None or not params.training.fit_last:
        raise ConfigError(
            "params.yaml: nights need the newest window: set window.last to null and "
            "training.fit_last to true"
        )
    return params


def check_champion(state: State, params: Params, *, adopt: bool) -> Entry | None:
    """Check that the settings are the champion's; return the entry of new ones, if any.

    New are those of the first night, of a challenger that won, and with `adopt` any.

    Raises:
        ConfigError: they are others.
    """
    settings = champion_settings(params)
    changed = _differences(state.champion or {}, settings)
    if not changed:
        return None
    won = [e for e in state.entries if e.details.get("outcome") == "won"]
    winner = next((e for e in won if e.details["settings"] == settings), None)
    if state.champion is None:
        why = "the settings of the first night"
    elif winner is not None:
        why = f"the settings of {winner.details['challenger']}, which won on {winner.window}"
    elif adopt:
        why = f"taken over without a trial: {_shown(changed)}"
    else:
        raise ConfigError(
            f"params.yaml: the settings are not the champion's: {_shown(changed)}. Restore them "
            f"and enrol the change in nightly.challengers, or take it over without a trial: "
            f"dayahead nightly --adopt"
        )
    window = state.decisions[-1].window if state.decisions else ""
    return Entry(kind="champion", window=window, why=why, details={"settings": settings})


def trial_of(params: Params, path: Path, name: str) -> Trial:
    """Return the trial of a challenger of params.yaml, which is at `path`.

    Raises:
        ConfigError: its settings are invalid, or the champion's but for training.seed.
    """
    merged = challenger_params(path, params.nightly.challengers[name])
    own = champion_settings(params)
    challenger = champion_settings(checked_params(merged, f"{path}: nightly.challengers.{name}"))
    challenger["training.fit_last"] = own["training.fit_last"]  # its runs alone leave the last out
    if challenger == own:
        raise ConfigError(
            f"{path}: nightly.challengers.{name}: its settings are the champion's; remove it, or "
            f"change it"
        )
    if [*_differences(own, challenger)] == ["training.seed"]:
        raise ConfigError(
            f"{path}: nightly.challengers.{name}: expected other settings than the champion's, "
            f"found another training.seed alone, which is luck: both are compared with "
            f"nightly.seeds ({params.nightly.seeds}) seeds. Remove it, or change another setting"
        )
    return Trial.of(name, own, challenger)


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    before, after = NO_TICK | before, NO_TICK | after
    names = sorted({*before, *after})
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _shown(changed: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {before} -> {after}" for name, (before, after) in changed.items())
