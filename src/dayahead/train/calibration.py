"""Short fits and evaluations of a study's first windows, timed: what its costs are predicted from.

Windows are counted whole, by catalogues of full size. Only what is repeated is cut short: a few
steps of the network, a few examples of the head, a few sessions evaluated.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from numba.core.event import install_timer

from dayahead.config.baselines import MEMORY, baselines_beside
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, ROLES
from dayahead.core.errors import DayaheadError
from dayahead.core.phases import PhaseRow, Stopwatch, peak_memory
from dayahead.distributed.launch import main_process
from dayahead.distributed.process import Process
from dayahead.train.checks import select_windows
from dayahead.train.compared_baselines import baseline_study
from dayahead.train.run import Run
from dayahead.train.study import Study
from dayahead.train.work import Work, work_of
from dayahead.windows.folder import Window, WindowFolder

STEPS, EXAMPLES, SESSIONS, WARM = 24, 1_000, 1_024, 64
"""Steps of a network, examples of the head and sessions that are evaluated; of each, and of the
sessions fitted on, in a first round that is not timed: it compiles."""
MOST_WINDOWS, MOST_COUNTED = 4, 500_000
"""Windows that are measured, at least two, and the sessions that are counted in them."""
KINDS = (
    *(("count", "counting"), ("head", "head"), ("memories", "examples"), ("memory", "examples")),
    *(("network", "steps"), ("early network", "steps")),
)
"""Phases of a fit and what their time grows with; the first one in a path of phases applies."""
CELL_BYTES = 6
"""Bytes of a candidate's feature in an example of the head: as float32, then float16."""
SAMPLED = "sampled_softmax"


class CalibrationError(DayaheadError):
    """Nothing could be measured."""


@dataclass(frozen=True)
class Measured:
    """A fit and an evaluation that were cut short."""

    work: Work
    """What they did."""
    seconds: dict[str, float]
    """By the kind of cost."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a network's step over a catalogue."""

    loss: str
    n_items: int
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """All that was measured."""

    own: list[Measured]
    """Of the study's model, window by window."""
    baselines: dict[str, list[Measured]]
    """Of the baselines that are run beside it."""
    steps: list[StepTime]
    """Of its network, at the catalogues of the first and the last window."""
    base_bytes: int
    """Memory of the libraries."""
    peak_bytes: int
    """Largest memory of the study's own fits and evaluations."""
    example_bytes: int
    """Memory of an example of the head."""
    start_seconds: float
    """Until the first fits begin: packages and compiled code are loaded."""


def calibrate(study: Study) -> Calibration:
    """Measure in a process of its own, whose memory is the study's alone.

    Raises:
        ConfigError: as `train`.
        CalibrationError: the process has ended early.
    """
    select_windows(WindowFolder(study.windows), study.params)  # its errors, before anything starts
    spawn = multiprocessing.get_context("spawn")
    others = {*multiprocessing.active_children()}
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        try:
            return pool.submit(_calibrate, study).result()
        except BrokenProcessPool:
            raise CalibrationError(
                "the process that measures the first windows has ended early, perhaps for want of "
                "memory; free some, or set model.network to none or memory.n_examples lower"
            ) from None
        except (KeyboardInterrupt, SystemExit):  # the pool would wait
            for child in {*multiprocessing.active_children()} - others:
                child.terminate()
            raise


def first_windows(folder: WindowFolder, windows: Sequence[Window]) -> Sequence[Window]:
    """Return the windows that are measured: all but the last of them are counted."""
    n_each = max(1, folder.n_sessions(windows[0], "train"))
    return windows[: 1 + min(MOST_WINDOWS, max(2, MOST_COUNTED // n_each))]


def _calibrate(study: Study) -> Calibration:
    imports = time.process_time()  # of this process so far, as a study's own has
    process = main_process(study.params.compute, 1)
    base = peak_memory()
    folder = WindowFolder(study.windows)
    windows, _ = select_windows(folder, study.params)
    first = first_windows(folder, windows)
    beside = {
        name: baseline_study(name, study, study.results)
        for name in baselines_beside(study.params.model.architecture)
    }
    start, compiling = time.perf_counter(), list[float]()
    with install_timer("numba:compile", compiling.append):
        for each in (study, *beside.values()):
            with _cut(each, windows, WARM, WARM) as warm:
                list(_fits(Run(warm, process, windows[0]), windows[:2]))
    # What was compiled here is kept, and the study need not do it again.
    start_seconds = imports + time.perf_counter() - start - sum(compiling)
    own, n_features = _measured(study, process, first)
    peak = peak_memory()
    counted = {name: _measured(each, process, first)[0] for name, each in beside.items()}
    steps = _step_times(study, process, windows)
    of_example = n_features * study.params.memory.n_candidates * CELL_BYTES
    return Calibration(own, counted, steps, base, peak, of_example, start_seconds)


def _measured(
    study: Study, process: Process, windows: Sequence[Window]
) -> tuple[list[Measured], int]:
    """Fit on each of these windows but the last, and evaluate on the next.

    Returns also the number of features of the head, 0 where there is none.
    """
    n_sessions = None if study.params.has_ticks else SESSIONS  # with ticks a window is counted
    with _cut(study, windows, None, n_sessions) as short:
        run = Run(short, process, windows[0])
        return list(_fits(run, windows)), len(run.model.evidence())


def _fits(run: Run, windows: Sequence[Window]) -> Iterator[Measured]:
    for index, window in enumerate(windows[:-1]):
        watch = Stopwatch()
        run.add_candidates(window)
        with watch.running():
            fit = run.fit([window])
            run.state()
            run.evaluate(windows[index + 1], fit)
        work = work_of(run.folder, run.params, windows[: index + 2], index)
        yield Measured(work, seconds_by_kind(watch.rows(), run.params))


def seconds_by_kind(rows: Sequence[PhaseRow], params: Params) -> dict[str, float]:
    """Return the seconds of a table of phases by what they grow with (the names of `Work`)."""
    found = dict.fromkeys(("steps", "head", "examples", "counting", "evaluation", "other"), 0.0)
    for row in rows[1:]:
        found[_kind(row.phase.split("/"), params)] += row.own_seconds
    return found


def _kind(phase: Sequence[str], params: Params) -> str:
    if phase[0] != "fit":
        return "evaluation" if phase[0] == "evaluate" else "other"
    is_alone = params.model.has_network and params.model.architecture != MEMORY
    kinds = (*KINDS, ("step", "steps" if is_alone else "counting"))
    return next((kind for name, kind in kinds if name in phase), "other")


def _step_times(study: Study, process: Process, windows: Sequence[Window]) -> list[StepTime]:
    """Time steps of the network alone, over the first window's catalogue and the last one's."""
    model, loss = study.params.model, study.params.loss
    if not model.has_network:
        return []
    alone = replace(study.params, model=model.of_network())
    wanted = [(alone, windows[0]), (alone, windows[-1])]
    if loss.name in {"auto", "softmax"}:
        wanted.append((replace(alone, loss=replace(loss, name=SAMPLED)), windows[-1]))
    return [_step_time(replace(study, params=each), process, window) for each, window in wanted]


def _step_time(study: Study, process: Process, window: Window) -> StepTime:
    with _cut(study, [window], None, None) as short:
        run = Run(short, process, window)
        run.fit([window])  # the first steps allocate memory, and compile products
        watch = Stopwatch()
        with watch.running():
            run.fit([window])
        work = work_of(run.folder, short.params, [window], 0)
    [seconds] = [row.seconds for row in watch.rows() if row.phase == "fit/step"]
    n_items = run.catalogue.sizes_at(window)[ITEM_ID]
    loss = study.params.loss.at_size(n_items).name
    return StepTime(loss, n_items, seconds / max(1, work.steps))


@contextmanager
def _cut(
    study: Study, windows: Sequence[Window], n_fitted: int | None, n_evaluated: int | None
) -> Iterator[Study]:
    """Yield the study with few steps and examples, and so many sessions of each window."""
    params, n_steps = study.params, study.params.training.steps_per_window
    is_warm = n_fitted is not None
    n_examples = min(params.memory.n_examples, WARM if is_warm else EXAMPLES)
    steps = min(n_steps or STEPS, STEPS, _epoch_steps(study, windows))
    training = replace(params.training, steps_per_window=1 if is_warm else steps, warmup_steps=0)
    short = replace(params, training=training, memory=replace(params.memory, n_examples=n_examples))
    with tempfile.TemporaryDirectory(prefix="dayahead-") as scratch:
        folder = Path(scratch) / "windows"
        _link(WindowFolder(study.windows), folder, windows, n_fitted, n_evaluated)
        yield replace(study, params=short, windows=folder, results=Path(scratch) / "results")


def _epoch_steps(study: Study, windows: Sequence[Window]) -> int:
    params, folder = study.params, WindowFolder(study.windows)
    return max(work_of(folder, params, windows, n).steps for n in range(len(windows))) or 1


def _link(
    source: WindowFolder,
    target: Path,
    windows: Sequence[Window],
    n_fitted: int | None,
    n_evaluated: int | None,
) -> None:
    """Make a folder of windows that has the first sessions alone of some; None: all."""
    target.mkdir()
    cut = {}
    for window in windows:
        for role in ROLES:
            n = n_fitted if role == "train" else n_evaluated
            if n is not None and source.n_sessions(window, role) > n:
                cut[source.path(window, role)] = n
    for path in source.folder.iterdir():
        if path in cut:
            batches = pq.ParquetFile(path).iter_batches(cut[path])
            first = next(batches)
            with pq.ParquetWriter(target / path.name, first.schema) as writer:
                writer.write_batch(first)
        else:
            (target / path.name).symlink_to(path.resolve())
