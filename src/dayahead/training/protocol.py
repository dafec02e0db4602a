"""The protocol: fit at a window, measure on the next, go on."""

import logging
import sys
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise

from dayahead.config.training import ComputeConfig
from dayahead.data.windows import Window, WindowStore
from dayahead.evaluation.tables import WindowResult
from dayahead.model.storage import save_model
from dayahead.training.plan import (
    chosen_windows,
    fitted_windows,
    measured_windows,
    refuse_empty_splits,
    refuse_unmeasured_sessions,
)
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


def _fit_and_measure(process: Process, study: Study) -> None:
    store = WindowStore(study.windows)
    windows = chosen_windows(store.windows, study.first, study.last)
    measured = measured_windows(windows, store.statistics["fitted_on"])
    refuse_empty_splits(store, measured, study.evaluation.split)
    refuse_unmeasured_sessions(store, measured, study.evaluation)
    run = Run(study, process, windows[0])
    results = ResultsFolder(study.results)
    if process.is_main:
        _begin(study, results)
    for place, (window, following) in enumerate(pairwise(windows), start=1):
        run.see(window)
        is_measured = following in measured
        if study.training.starts_afresh and not is_measured:
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
