"""The stage `train`: fit on each window, evaluate on the next, and repeat."""

import logging
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from torch import Tensor

from dayahead.config.model import AUTO
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, SESSION_ID
from dayahead.core.errors import ModelFileError
from dayahead.core.phases import add_rows, phase, read_phases, recorded
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import KEPT_BYTES_LARGE, Process, keep_freed
from dayahead.metrics.lists import Figures
from dayahead.metrics.metrics import main_metric
from dayahead.model.tensor_files import StoredTensor
from dayahead.outputs.tables import WindowResult
from dayahead.train.cached_windows import CachedWindows
from dayahead.train.checks import check_consistency, fitted_windows, n_with_target, select_windows
from dayahead.train.evaluated_lists import names_of
from dayahead.train.profiling import FOLDER, WindowProfile, profile_metrics
from dayahead.train.results import EvaluatedWindow, ResultsFolder, Timing
from dayahead.train.run import Fit, Run
from dayahead.train.study import OnWindow, Study, WindowRecord
from dayahead.windows.folder import Window, WindowFolder

_log = logging.getLogger(__name__)


def train(study: Study, on_window: OnWindow | None = None) -> dict[str, float]:
    """Run the protocol; write windows.csv, timing.csv, ranks/ and the newest model.

    What an earlier run with the same settings finished, interrupted or not, is taken from the
    cache.

    Returns:
        Seconds of the phases of a profile, if the settings ask for one.

    Raises:
        ConfigError: windows are selected that do not exist, or settings do not suit the data.
        TrainingError: a loss is not finite, or a process died.
    """
    compute, machine = study.params.compute, study.params.machine
    with tempfile.TemporaryDirectory(prefix="dayahead-") as scratch:
        # The main process may be another one than this; it leaves its times in a file.
        study = replace(study, phases=Path(scratch) / "phases.csv")
        run_processes(run_protocol, compute, study, on_window, max_restarts=machine.max_restarts)
        if study.phases is not None and study.phases.exists():
            add_rows(read_phases(study.phases))
    return profile_metrics(study.results)


def run_protocol(process: Process, study: Study, on_window: OnWindow | None = None) -> None:
    """Run one process's part of the protocol."""
    if study.params.training.loader == "stream":
        keep_freed(KEPT_BYTES_LARGE)
    with recorded(study.phases if process.is_main else None):
        _run_protocol(process, study, on_window)


def _run_protocol(process: Process, study: Study, on_window: OnWindow | None) -> None:
    with phase("set up"):
        check_consistency(process, study)
        windows, evaluated_windows = select_windows(WindowFolder(study.windows), study.params)
        run = Run(study, process, windows[0])
        cached = CachedWindows(study, run.catalogue, windows, process)
        profile = WindowProfile(study.params.profile, process, study.results / FOLDER)
        schedule = FitSchedule(run, windows, cached, profile)
        results = _open_results(run, windows, evaluated_windows) if process.is_main else None
    progress = Progress(len(evaluated_windows))
    with cached:
        for index, window in enumerate(windows[1:]):
            # For every window, also if its fit is restored or it is not evaluated.
            run.add_candidates(windows[index])
            if profile.is_of(windows[index]):
                schedule.fit_up_to(index)
            if window not in evaluated_windows:
                continue
            evaluated, is_cached = schedule.evaluate(index, study.results)
            if results is not None and evaluated is not None:
                result = results.add(evaluated)
                position = progress.advance(is_cached=is_cached)
                _log.info(log_line(result, position, is_cached=is_cached))
                if on_window is not None:
                    on_window(_window_record(window, result, evaluated.timing, results.figures))
        # Without fit_last, the last window is only evaluated on.
        last = len(windows) - (1 if study.params.training.fit_last else 2)
        run.add_candidates(windows[last])
        run.save(schedule.fit_up_to(last).window)
    profile.finish()


class Progress:
    """Position among the windows to evaluate, and the time that the rest will take."""

    def __init__(self, n_windows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_windows = n_windows
        self.clock = clock
        self.n_done = 0
        self._seconds: list[float] = []
        """Seconds of each window that was not cached, the first of them with the start-up."""
        self._last = clock()

    def advance(self, *, is_cached: bool) -> str:
        """Count a window; return for example `window 3 of 14, 0:02:10 left`.

        The first window that is not cached takes longer than others: code is loaded and compiled,
        and a first fit may have more epochs. Without a second one no time is given.
        """
        now = self.clock()
        self.n_done += 1
        if not is_cached:
            self._seconds.append(now - self._last)
        self._last = now
        n_left = self.n_windows - self.n_done
        later = self._seconds[1:]
        left = ""
        if n_left and later:
            seconds = n_left * sum(later) / len(later)
            left = f", {timedelta(seconds=round(seconds))} left"
        return f"window {self.n_done} of {self.n_windows}{left}"


@dataclass
class FitSchedule:
    """Brings a run's model to one window after the other, with as few fits as the cache allows."""

    run: Run
    windows: Sequence[Window]
    cached: CachedWindows
    profile: WindowProfile
    index: int = -1
    """Index of the window that the model was fitted on last."""
    fit: Fit | None = None

    def fit_up_to(self, index: int) -> Fit:
        """Bring the model to its state after the fit of windows[index], and return that fit.

        `index` must not decrease from call to call.
        """
        if index > self.index:
            # A protocol that starts each fit from a fresh model needs no earlier fit.
            config = self.run.params.training
            first = index if config.starts_afresh else self.index + 1
            # A fit that is profiled is never restored from the cache.
            highest = index - self.profile.is_of(self.windows[index])
            for number in range(self._restore(first, highest), index + 1):
                self.cached.finish()  # the writer may still read the state that this fit changes
                with self.profile.of(self.windows[number]):
                    fit = self.run.fit(fitted_windows(self.windows[: number + 1], config))
                state = self.run.state()
                size = sum(tensor.nbytes for tensor in state.values())
                self.fit = replace(fit, state_bytes=size)
                self.cached.write_fit(number, self.fit, state)
            self.index = index
        assert self.fit is not None
        return self.fit

    def evaluate(self, index: int, results: Path) -> tuple[EvaluatedWindow | None, bool]:
        """Evaluate the model fitted on windows[index] on the next one.

        Returns:
            The evaluation, and whether it comes from the cache. If it does, only the main process
            has it; the others get None.
        """
        window = self.windows[index]
        is_profiled = self.profile.is_of(window)
        evaluated = None if is_profiled else self.cached.read_evaluation(index, results)
        # Only the main process reads the cache; all must agree on whether to fit.
        if self.run.process.broadcast(evaluated is not None):
            return evaluated, True
        fit = self.fit_up_to(index)
        with self.profile.of(window):
            evaluated = self.run.evaluate(self.windows[index + 1], fit)
        self.cached.finish()  # so that no evaluation is cached without its fit
        self.cached.write_evaluation(index, evaluated)
        if self.run.process.is_main:
            evaluated.write_lists(results)
        return evaluated, False

    def _restore(self, lowest: int, highest: int) -> int:
        """Restore the newest cached fit in this range; return the index of the next one to do."""
        broadcast = self.run.process.broadcast

        def restore(
            index: int, fit: Fit, state: Mapping[str, Tensor | StoredTensor] | None
        ) -> None:
            self.run.restore(fit.window, state)
            self.index, self.fit = index, fit
            _log.info("fit %s: from the cache", fit.window.name)

        def send(index: int, fit: Fit, state: Mapping[str, Tensor | StoredTensor]) -> None:
            broadcast((index, fit))
            restore(index, fit, state)

        if self.cached.restore_newest(lowest, highest, send):
            return self.index + 1
        newest: tuple[int, Fit] | None
        # The main process has broadcast each fit that it tried, and None after the last.
        while (newest := broadcast(None)) is not None:
            with suppress(ModelFileError):  # the main process then sends the fit before
                restore(*newest, None)
                return self.index + 1
        return lowest


def _open_results(
    run: Run, windows: Sequence[Window], evaluated: Sequence[Window]
) -> ResultsFolder:
    study = run.study
    if not logging.getLogger().handlers:  # in a process that torchrun started
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    if study.params.model.catalogue == "full":
        _log.info("model.catalogue: full: items of later windows are held from the start")
    _log_loss(run, windows)
    if study.params.events.targets is not None:
        _log_targets(WindowFolder(study.windows), evaluated, study.params)
    _log_not_evaluated(run.folder, windows, evaluated)
    config = study.params.evaluation
    results = ResultsFolder(study.results, config.cutoffs, names_of(config), config.metrics)
    results.clear()
    return results


def _log_loss(run: Run, windows: Sequence[Window]) -> None:
    """Say from which window on `loss.name: auto` is the sampled softmax, if it ever is."""
    config, model = run.params.loss, run.params.model
    for window in windows if config.name == AUTO and model.has_network else ():
        n_items = run.catalogue.sizes_at(window)[ITEM_ID]
        if config.at_size(n_items).is_sampled:
            _log.info(
                f"loss.name: auto: sampled_softmax from {window.name} on, with {n_items:,} items"
            )
            return


def _log_targets(folder: WindowFolder, evaluated: Sequence[Window], params: Params) -> None:
    split, targets = params.evaluation.split, " or ".join(params.events.targets or ())
    n_all = sum(len(folder.read(window, split, [SESSION_ID])) for window in evaluated)
    n_found = sum(n_with_target(folder, evaluated, params))
    _log.info(
        f"events.targets: {n_found:,} of {n_all:,} sessions have a {targets} after their first "
        f"event and are evaluated, the others are not"
    )


def _log_not_evaluated(
    folder: WindowFolder, windows: Sequence[Window], evaluated: Sequence[Window]
) -> None:
    fitted_on = folder.statistics.fitted_on
    empty = [w.name for w in windows[1:] if w not in evaluated and w.name not in fitted_on]
    if empty:
        _log.warning(f"not evaluated, as no session has a target: {', '.join(empty)}")


def _window_record(
    window: Window, result: WindowResult, timing: Timing, lists: Figures
) -> WindowRecord:
    rates = asdict(timing)
    del rates["window"]
    train = {f"train_{name}": value for name, value in result.train_metrics.items()}
    figures = {"target_outside": result.target_outside, "train_loss": result.train_loss, **rates}
    return {
        "step": window.position,
        "timestamp_ms": window.start_time // 1000,
        "metrics": {**result.metrics, **lists, **train, **figures},
    }


def log_line(result: WindowResult, position: str, *, is_cached: bool) -> str:
    """Return what the terminal shows of a window: at most 100 columns, where it has not far to go.

    NDCG and recall at the longest cutoff; results/windows.csv and timing.csv have all figures.
    """
    main = main_metric(result.metrics)
    names = (main, main.replace("ndcg", "recall"))
    metrics = " ".join(f"{name} {result.metrics[name]:.4f}" for name in names)
    loss = "" if result.train_loss is None else f" loss {result.train_loss:.3f}"
    cached = ", from the cache" if is_cached else ""
    return f"{position}: {result.window} {metrics}{loss}{cached}"
