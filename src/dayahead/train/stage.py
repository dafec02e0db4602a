"""The protocol: fit at a window, measure on the next, go on."""

import logging
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from dayahead.config.params import Params
from dayahead.config.training import ComputeConfig
from dayahead.core.errors import DataError
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.rendezvous import PATIENCE
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.metrics.tables import WindowResult
from dayahead.model.checkpoint import save_model
from dayahead.train.cached_windows import WindowStates
from dayahead.train.checks import (
    chosen_windows,
    measured_windows,
    refuse_empty_splits,
    refuse_unmeasured_sessions,
)
from dayahead.train.consistency import refuse_disagreement
from dayahead.train.course import Course
from dayahead.train.results import ResultsFolder, Timing
from dayahead.train.run import Run, Study, WindowRecord
from dayahead.windows.folder import Window, WindowStore

_STORED = ", out of the store"
log = logging.getLogger(__name__)


def study_of(params: Params, windows: Path, results: Path, models: Path) -> Study:
    """What the settings ask for, in these folders; nobody is told of its windows yet."""
    return Study(
        dataset=params.dataset,
        first=params.window.first,
        last=params.window.last,
        model=params.model,
        task=params.task,
        loss=params.loss,
        training=params.training,
        evaluation=params.evaluation,
        windows=windows,
        results=results,
        models=models,
    )


def train(study: Study, compute: ComputeConfig) -> None:
    """Run the protocol; write windows.csv, timing.csv, ranks/ and the newest model.

    What an earlier run with the same settings finished, killed or not, comes out of the store.

    Raises:
        ConfigError: windows are asked for that are not there, or settings do not fit the data.
        TrainingError: a loss is not finite, or a process died.
        DataError: the store loses what it is given.
    """
    run_processes(fit_and_measure, compute, study, compute)


def fit_and_measure(process: Process, study: Study, compute: ComputeConfig) -> None:
    """Do one process's part of the protocol."""
    refuse_disagreement(process, study, compute)
    store = WindowStore(study.windows)
    windows = chosen_windows(store.windows, study.first, study.last)
    measured = measured_windows(windows, store.statistics["fitted_on"])
    refuse_empty_splits(store, measured, study.evaluation.split)
    refuse_unmeasured_sessions(store, measured, study.evaluation)
    share = process.share
    shard = Shard.of_process(share.rank, share.world, PATIENCE) if compute.shard_items else WHOLE
    run = Run(study, process, windows[0], shard=shard)
    results, states = None, None
    if process.is_main:
        states = WindowStates(study.store, run, windows, compute)
        results = _begun(study)
    course = Course(run, windows, states)
    for place, following in enumerate(windows[1:]):
        run.see(windows[place])
        if following in measured:
            _measure(course, place, following, results)
    last = len(windows) - (1 if study.training.fit_last else 2)
    run.see(windows[last])
    fit = course.at(last)
    weights = run.whole_weights()
    if process.is_main:
        save_model(study.models, run.stored_model(fit.window), weights)


def _measure(course: Course, place: int, window: Window, results: ResultsFolder | None) -> None:
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
                    f"{run.study.store}: what was just measured on {window.name} is gone or "
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
    results = ResultsFolder(study.results, study.evaluation.cutoffs)
    results.begin()
    if study.model.catalogue == "full":
        log.info("model.catalogue: full: items of later windows are held from the start")
    return results


def _log_to_stderr() -> None:
    """Show our own lines also in a process that torchrun started, which has no logging yet."""
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
