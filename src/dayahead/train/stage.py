"""The protocol: fit at a window, measure on the next, go on."""

import logging
import sys
from dataclasses import asdict
from datetime import datetime

from dayahead.core.errors import DataError
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.rendezvous import TIMEOUT
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.metrics.tables import WindowResult
from dayahead.model.checkpoint import save_model
from dayahead.train.cached_windows import CachedWindows
from dayahead.train.checks import (
    check_attention_sessions,
    check_splits,
    chosen_windows,
    measured_windows,
)
from dayahead.train.consistency import check_consistency
from dayahead.train.results import ResultsFolder, Timing
from dayahead.train.run import Run, Study, WindowRecord
from dayahead.train.window_schedule import WindowSchedule
from dayahead.windows.folder import Window, WindowFolder

_STORED = ", out of the store"
log = logging.getLogger(__name__)


def train(study: Study) -> None:
    """Run the protocol; write windows.csv, timing.csv, ranks/ and the newest model.

    What an earlier run with the same settings finished, killed or not, comes out of the store.

    Raises:
        ConfigError: windows are asked for that are not there, or settings do not fit the data.
        TrainingError: a loss is not finite, or a process died.
        DataError: the store loses what it is given.
    """
    compute, machine = study.params.compute, study.params.machine
    run_processes(fit_and_measure, compute, study, max_restarts=machine.max_restarts)


def fit_and_measure(process: Process, study: Study) -> None:
    """Do one process's part of the protocol."""
    check_consistency(process, study)
    params = study.params
    store = WindowFolder(study.windows)
    windows = chosen_windows(store.windows, params.window.first, params.window.last)
    measured = measured_windows(windows, store.statistics.fitted_on)
    check_splits(store, measured, params.evaluation.split)
    check_attention_sessions(store, measured, params.evaluation)
    shard = (
        Shard.of_process(process.rank.index, process.rank.world_size, TIMEOUT)
        if params.compute.shard_items
        else WHOLE
    )
    run = Run(study, process, windows[0], shard=shard)
    results, states = None, None
    if process.is_main:
        states = CachedWindows(study.cache, run, windows)
        results = _begun(study)
    course = WindowSchedule(run, windows, states)
    for place, following in enumerate(windows[1:]):
        run.see(windows[place])
        if following in measured:
            _measure(course, place, following, results)
    last = len(windows) - (1 if params.training.fit_last else 2)
    run.see(windows[last])
    fit = course.at(last)
    weights = run.whole_weights()
    if process.is_main:
        save_model(study.models, run.stored_model(fit.window), weights)


def _measure(
    course: WindowSchedule, place: int, window: Window, results: ResultsFolder | None
) -> None:
    """Add to the results what the fit at `place` comes to on the next window."""
    run, states = course.run, course.states
    found = None if states is None or results is None else states.measured(place, results.add)
    is_known = run.process.told(found is not None)
    if not is_known:
        measured = run.measure(window, course.at(place))
        if states is not None and results is not None:
            states.keep_measured(place, measured)
            found = states.measured(place, results.add)
            if found is None:
                raise DataError(
                    f"{run.study.cache}: what was just measured on {window.name} is gone or "
                    f"damaged; look at the disk, and run again"
                )
    if found is not None:
        result, timing = found
        log.info("%s%s", _line(course.windows[place], result, timing), _STORED * is_known)
        run.study.on_window(_record(window, result, timing))


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


def _begun(study: Study) -> ResultsFolder:
    _log_to_stderr()
    results = ResultsFolder(study.results, study.params.evaluation.cutoffs)
    results.begin()
    if study.params.model.catalogue == "full":
        log.info("model.catalogue: full: items of later windows are held from the start")
    return results


def _log_to_stderr() -> None:
    """Show our own lines also in a process that torchrun started, which has no logging yet."""
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
