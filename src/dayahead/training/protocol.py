"""The protocol: fit at a window, measure on the next, go on."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise

from dayahead.columns import ROLES
from dayahead.config.params import ComputeConfig, TrainingConfig
from dayahead.data.windows import Window, WindowStore
from dayahead.errors import ConfigError
from dayahead.evaluation.tables import WindowResult
from dayahead.model.storage import save_model
from dayahead.training.processes import Process, run_processes
from dayahead.training.results import ResultsFolder, Timing
from dayahead.training.run import Run, Study, WindowRecord

log = logging.getLogger(__name__)


def train(study: Study, compute: ComputeConfig) -> None:
    """Run the protocol; write windows.csv, timing.csv, ranks/ and the newest model.

    Raises:
        ConfigError: windows are asked for that are not there, or settings do not fit the data.
        TrainingError: a loss is not finite, or a process died.
    """
    run_processes(_fit_and_measure, compute, study)


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


def _measured_names(windows: list[Window], fitted_on: list[str]) -> list[str]:
    """All but the first window and those the statistics were fitted on."""
    names = [window.name for window in windows[1:] if window.name not in fitted_on]
    if not names:
        raise ConfigError(
            f"params.yaml: nothing to measure from {windows[0].name} to {windows[-1].name}: the "
            f"statistics were fitted on all of them; lower preprocess.fit_windows or set "
            f"window.last to a later one"
        )
    return names


def _refuse_empty_splits(store: WindowStore, measured: list[Window], split: str) -> None:
    """Say before any training what would end it in the middle."""
    roles = ROLES if split == "all" else (split,)
    empty = [w.name for w in measured if not any(store.n_sessions(w, role) for role in roles)]
    if empty:
        raise ConfigError(
            f"params.yaml: evaluation.split: {split} has no session in {len(empty)} of the "
            f"{len(measured)} windows to be measured, first in {empty[0]}; raise "
            f"window.min_sessions, or widen the split's interval in the data set's file"
        )


def _fit_and_measure(process: Process, study: Study) -> None:
    store = WindowStore(study.windows)
    windows = chosen_windows(store.windows, study.first, study.last)
    measured = _measured_names(windows, store.statistics["fitted_on"])
    _refuse_empty_splits(store, [w for w in windows if w.name in measured], study.evaluation.split)
    results = ResultsFolder(study.results)
    if process.is_main:
        _begin(study, results)
    run = Run(study, process, windows[0])
    for place, (window, following) in enumerate(pairwise(windows), start=1):
        run.see(window)
        is_measured = following.name in measured
        if run.starts_afresh and not is_measured:
            continue  # nothing would ever be asked of this model
        fit = run.fit(fitted_windows(windows[:place], study.training))
        if is_measured:
            found = run.measure(following, fit)
            if process.is_main:
                results.add(found)
                log.info(_line(window, found.result, found.timing))
                study.on_window(_record(following, found.result, found.timing))
    fitted = windows[-2]
    if study.training.fit_last:
        fitted = windows[-1]
        run.see(fitted)
        run.fit(fitted_windows(windows, study.training))
    if process.is_main:
        save_model(study.models, run.stored_model(fitted))


def _record(window: Window, result: WindowResult, timing: Timing) -> WindowRecord:
    rates = asdict(timing)
    del rates["window"]
    train = {f"train_{name}": value for name, value in result.train_metrics.items()}
    figures = (
        result.metrics
        | train
        | {
            "target_outside": result.target_outside,
            "train_loss": result.train_loss,
            **rates,
        }
    )
    start = datetime.fromisoformat(window.start)
    return {
        "step": window.position,
        "timestamp_ms": round(start.timestamp() * 1000),
        "metrics": figures,
    }


def _line(fitted: Window, result: WindowResult, timing: Timing) -> str:
    loss = "" if result.train_loss is None else f" loss {result.train_loss:.4f}"
    metrics = " ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
    return (
        f"fit {fitted.name}{loss} ({timing.fit_sessions_per_second:,.0f} sessions/s), measured "
        f"{result.window}: {result.n_sessions:,} sessions, {metrics} "
        f"({timing.measure_sessions_per_second:,.0f} sessions/s)"
    )


def _begin(study: Study, results: ResultsFolder) -> None:
    _log_to_stderr()
    results.begin()
    if study.model.catalogue == "full":
        log.info("model.catalogue: full: items of later windows are held from the start")


def _log_to_stderr() -> None:
    """Show our own lines also in a process that torchrun started, which has no logging yet."""
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
