"""What a study will take on this machine, before it is trained: minutes and GiB, and what of.

Each kind of work has a cost per unit (`Work`), measured on the first windows (`calibrate`). It may
grow with the catalogue, since memories fill up as it does: linearly, as measured, but never faster
than in proportion.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from dayahead.config.baselines import MEMORY, baselines_beside
from dayahead.config.params import Params
from dayahead.distributed.launch import main_process
from dayahead.train.cached_windows import CachedWindows
from dayahead.train.calibration import (
    Calibration,
    CalibrationError,
    Measured,
    StepTime,
    calibrate,
    first_windows,
)
from dayahead.train.catalogue import Catalogue
from dayahead.train.checks import select_windows
from dayahead.train.compared_baselines import baseline_study
from dayahead.train.study import Study
from dayahead.train.work import Work, work_of
from dayahead.windows.folder import WindowFolder

LEAST_PASSES, LEAST_SECONDS = 300_000, 600
"""A study is measured before it is trained if it visits at least so many sessions, each counted as
often as it is visited. The estimate is logged if it is at least so many seconds."""
LEAST_TIMES = 5
"""Nor is a study measured that visits fewer than so many times the sessions that measuring counts:
this would take a large part of the study's time."""
ERROR = 0.3
"""Expected relative error of an estimate."""
NAMES = {
    "steps": "steps of the network",
    "head": "steps of the head",
    "examples": "features of the head's examples",
    "counting": "counting of sessions",
    "evaluation": "evaluation",
    "baselines": "baselines beside it",
    "other": "the rest",
}
GROWING = ("examples", "counting", "evaluation")
"""Kinds whose cost per unit may depend on the catalogue; that of the network's steps is apart."""
KINDS = tuple(each.name for each in fields(Work) if each.name not in {"window", "n_items"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WindowCost:
    """Predicted cost of fitting a window and evaluating the model on the windows after it."""

    window: str
    seconds: dict[str, float]
    """By kind."""
    gib: float
    """Peak memory."""

    @property
    def total(self) -> float:
        """Seconds of all kinds."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of a study."""

    windows: list[WindowCost]
    with_setting: dict[str, float]
    """Seconds of the study with one other setting, the fastest first."""
    start: float = 0.0
    """Seconds before the first fit."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole study."""
        return self.start + sum(each.total for each in self.windows)

    @property
    def gib(self) -> float:
        """Peak memory."""
        return max(each.gib for each in self.windows)

    @property
    def shares(self) -> dict[str, float]:
        """Share of each kind in the seconds, the largest first."""
        found = {name: sum(each.seconds[name] for each in self.windows) for name in NAMES}
        found["other"] += self.start
        total = self.seconds or 1.0
        ordered = sorted(found.items(), key=lambda each: -each[1])
        return {name: seconds / total for name, seconds in ordered if seconds}

    def line(self) -> str:
        """Return the estimate in a line."""
        [(kind, share), *_] = self.shares.items()
        advice = "".join(
            f"; {setting} would make it {duration(seconds)}"
            for setting, seconds in [*self.with_setting.items()][:1]
        )
        return (
            f"about {duration(self.seconds)} for {len(self.windows)} windows and {self.gib:.1f} "
            f"GiB (within {ERROR:.0%}), {share:.0%} of the time {NAMES[kind]}{advice}"
        )

    def text(self) -> str:
        """Return what the verb prints."""
        first, last = self.windows[0], self.windows[-1]
        lines = [self.line().partition("; ")[0]]
        lines += [
            f"  {each.window}: {duration(each.total)}, {each.gib:.1f} GiB" for each in (first, last)
        ]
        lines += ["", "share of the time"]
        lines += [f"  {share:4.0%} {NAMES[kind]}" for kind, share in self.shares.items()]
        lines += ["", "with another setting"] if self.with_setting else []
        lines += [f"  {duration(each)} {name}" for name, each in self.with_setting.items()]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "seconds": self.seconds,
            "gib": self.gib,
            "error": ERROR,
            "shares": self.shares,
            "with_setting": self.with_setting,
            "windows": [asdict(each) for each in self.windows],
        }


def duration(seconds: float) -> str:
    """Return seconds in words: 40 s, 12 min, 3 h 10 min."""
    if seconds < 90:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def announce(study: Study) -> None:
    """Log in a line what is not cached of a study will take, where that is more than ten minutes.

    Studies that are small, or have few windows, are not measured.

    Raises:
        ConfigError: as `train`.
    """
    folder = WindowFolder(study.windows)
    windows, _ = select_windows(folder, study.params)
    process = main_process(study.params.compute)
    with CachedWindows(study, Catalogue(folder, study.params.model), windows, process) as cached:
        left = {
            window.name
            for index, window in enumerate(windows[:-1])
            if cached.evaluation_key(index) not in cached.evaluations
        }
    works = (work_of(folder, study.params, windows, index) for index in range(len(windows)))
    passes = sum(_passes(work, study.params) for work in works if work.window in left)
    counted = first_windows(folder, windows)[:-1]
    if passes < LEAST_PASSES:
        return
    if passes < LEAST_TIMES * sum(folder.n_sessions(each, "train") for each in counted):
        _log.info("train: few windows, so they are not measured; `dayahead estimate` does")
        return
    try:
        found = estimate(study, calibrate(study), left)
    except CalibrationError as error:  # the study itself may do
        _log.warning("train: no estimate: %s", error)
        return
    if found.seconds > LEAST_SECONDS:
        _log.info("train: %s", found.line())


def _passes(work: Work, params: Params) -> int:
    """Return how many sessions are visited, each counted as often as it is visited."""
    return work.counting + work.evaluation + work.steps * params.training.batch_size


def estimate(study: Study, found: Calibration, left: Collection[str] | None = None) -> Estimate:
    """Predict a study from what was measured of its first windows.

    Args:
        study: settings and windows.
        found: what was measured.
        left: names of the windows whose fits count; None: all.

    Raises:
        ConfigError: as `train`.
    """

    def costs_of(params: Params) -> list[WindowCost]:
        every = _window_costs(replace(study, params=params), found)
        return [each for each in every if left is None or each.window in left]

    costs = costs_of(study.params)
    start = found.start_seconds
    others = {
        setting: start + sum(each.total for each in costs_of(params))
        for setting, params in _alternatives(study.params, found)
    }
    total = start + sum(each.total for each in costs)
    faster = {name: seconds for name, seconds in others.items() if seconds < total}
    return Estimate(costs, dict(sorted(faster.items(), key=lambda each: each[1])), start)


def _window_costs(study: Study, found: Calibration) -> Iterator[WindowCost]:
    folder, params = WindowFolder(study.windows), study.params
    windows, _ = select_windows(folder, params)
    beside = {
        name: baseline_study(name, study, study.results).params
        for name in baselines_beside(params.model.architecture)
    }
    n_fits = len(windows) - (not params.training.fit_last)
    for index in range(n_fits):
        work = work_of(folder, params, windows, index)
        seconds = _seconds(work, found.own)
        seconds["steps"] = work.steps * _step_seconds(work, params, found.steps)
        is_last = index == len(windows) - 1  # which baselines do not fit
        seconds["baselines"] = sum(
            sum(_seconds(work_of(folder, each, windows, index), found.baselines[name]).values())
            for name, each in ({} if is_last else beside).items()
        )
        yield WindowCost(work.window, seconds, _gib(work, found))


def _seconds(work: Work, measured: Sequence[Measured]) -> dict[str, float]:
    """Return the seconds of a window's work by kind."""
    found = {}
    for kind in KINDS:
        units = [(m.work.n_items, m.seconds[kind] / getattr(m.work, kind)) for m in measured
                 if getattr(m.work, kind)]  # fmt: skip
        each = (grown(units, work.n_items, is_growing=kind in GROWING)) if units else 0.0
        found[kind] = getattr(work, kind) * each
    return found


def grown(points: Sequence[tuple[int, float]], n_items: int, *, is_growing: bool = True) -> float:
    """Return the cost of a unit over a catalogue, from its costs over others.

    A line through them, which neither falls nor rises faster than in proportion; the mean of those
    that are not `is_growing`.
    """
    sizes, costs = (np.array(each, float) for each in zip(*points, strict=True))
    middle, mean = sizes.mean(), costs.mean()
    spread = ((sizes - middle) ** 2).sum()
    slope = ((sizes - middle) * (costs - mean)).sum() / spread if spread and is_growing else 0.0
    slope = min(max(slope, 0.0), mean / middle if middle else 0.0)
    return float(mean + slope * (n_items - middle))


def _step_seconds(work: Work, params: Params, steps: Sequence[StepTime]) -> float:
    """Return the seconds of a step of the network, of the loss that it has at this size."""
    loss = params.loss.at_size(work.n_items).name
    points = [(each.n_items, each.seconds) for each in steps if each.loss == loss]
    return grown(points, work.n_items) if points else 0.0


def _gib(work: Work, found: Calibration) -> float:
    """Return the peak memory of a window: what was measured grows with items or sessions."""
    most = max(each.work.n_items for each in found.own)
    sessions = max(each.work.counting for each in found.own)
    growth = max(1.0, work.n_items / max(1, most), work.counting / max(1, sessions))
    measured = (found.peak_bytes - found.base_bytes) * growth
    n_more = work.examples - max(each.work.examples for each in found.own)
    return (found.base_bytes + measured + max(0, n_more) * found.example_bytes) / 2**30


def _alternatives(params: Params, found: Calibration) -> Iterator[tuple[str, Params]]:
    """Yield settings that may shorten a study, which change what it learns or reports."""
    model, training, evaluation = params.model, params.training, params.evaluation
    has_memory, has_network = model.architecture == MEMORY, model.has_network
    is_full = any(each.loss == "softmax" for each in found.steps)
    by_epochs = has_network and training.steps_per_window is None and training.epochs > 1
    most_steps = params.most_steps
    candidates = (
        (has_memory, "memory", "n_examples", max(1, params.memory.n_examples // 2)),
        (has_memory and has_network, "model", "network", "none"),
        (by_epochs, "training", "epochs", training.epochs // 2),
        (bool(most_steps), "memory", "network_steps", max(1, (most_steps or 0) // 2)),
        (is_full, "loss", "name", "sampled_softmax"),
        (evaluation.split == "all", "evaluation", "split", "test"),
        (evaluation.horizon > 1, "evaluation", "horizon", 1),
    )
    for applies, section, name, value in candidates:
        if applies:
            changed = replace(getattr(params, section), **{name: value})
            yield f"{section}.{name}={value}", replace(params, **{section: changed})
