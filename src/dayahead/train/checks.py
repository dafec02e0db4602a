"""Which windows are fitted and measured, and what is refused before any training."""

from collections.abc import Sequence

from dayahead.config.params import EvaluationConfig, TrainingConfig
from dayahead.core.columns import ROLES, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.windows.folder import Window, WindowFolder


def chosen_windows(
    standing: tuple[Window, ...], first: str | None, last: str | None
) -> list[Window]:
    """Return the standing windows from `first` to `last`, both included.

    Raises:
        ConfigError: a name is no standing window, or fewer than two are left.
    """
    if not standing:
        raise ConfigError(
            "data/windows/windows.json: no window stands, and it says why for each; lower "
            "window.min_sessions in params.yaml or download a longer log"
        )
    names = [window.name for window in standing]
    for key, name in (("first", first), ("last", last)):
        if name is not None and name not in names:
            raise ConfigError(
                f"params.yaml: window.{key}: {name} is no standing window; there are {len(names)}, "
                f"{names[0]} to {names[-1]} (data/windows/windows.json lists them all, and why "
                f"some are left out)"
            )
    start = names.index(first) if first else 0
    end = names.index(last) if last else len(names) - 1
    if end <= start:
        raise ConfigError(
            f"params.yaml: window.first to window.last is {names[start]} to {names[end]}; the "
            f"protocol fits one window and measures the next, so it needs two at least"
        )
    return list(standing[start : end + 1])


def fitted_windows(past: Sequence[Window], config: TrainingConfig) -> Sequence[Window]:
    """Return those of the windows so far whose train sessions the protocol fits on now."""
    n_windows = {"incremental": 1, "sliding": config.history, "from_scratch": len(past)}
    return past[-n_windows[config.protocol] :]


def measured_windows(windows: list[Window], fitted_on: list[str]) -> list[Window]:
    """Return all but the first window and those the statistics were fitted on.

    Raises:
        ConfigError: none are left.
    """
    measured = [window for window in windows[1:] if window.name not in fitted_on]
    if not measured:
        raise ConfigError(
            f"params.yaml: nothing to measure from {windows[0].name} to {windows[-1].name}: the "
            f"statistics were fitted on all of them; lower preprocess.fit_windows or set "
            f"window.last to a later one"
        )
    return measured


def check_splits(store: WindowFolder, measured: list[Window], split: str) -> None:
    """Say before any training what would end it in the middle.

    Raises:
        ConfigError: a window has no session to measure it.
    """
    roles = ROLES if split == "all" else (split,)
    empty = [w.name for w in measured if not any(store.n_sessions(w, role) for role in roles)]
    if empty:
        raise ConfigError(
            f"params.yaml: evaluation.split: {split} has no session in {len(empty)} of the "
            f"{len(measured)} windows to be measured, first in {empty[0]}; raise "
            f"window.min_sessions, or widen the split's interval in the data set's file"
        )


def check_attention_sessions(
    store: WindowFolder, measured: list[Window], config: EvaluationConfig
) -> None:
    """Look for the sessions whose attention is wanted, before hours of training have passed.

    Raises:
        ConfigError: some measure no window.
    """
    missing = set(config.attention_of)
    for window in measured if missing else ():
        missing -= set(store.read(window, config.split, [SESSION_ID])[SESSION_ID].to_pylist())
    if missing:
        raise ConfigError(
            f"params.yaml: evaluation.attention_of: {len(missing)} of {len(config.attention_of)} "
            f"sessions are in none of the {len(measured)} windows measured with evaluation.split: "
            f"{config.split}, first {min(missing)}; take ids from results/ranks/"
        )
