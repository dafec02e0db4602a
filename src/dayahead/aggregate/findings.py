"""The content of a run's report, read from its folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np

from dayahead.aggregate.averaging import Average, average
from dayahead.aggregate.lists import ListAverage, average_lists
from dayahead.aggregate.origin import Origin, origin_of
from dayahead.aggregate.slices import Slicing, slicings_of, sums_by_group
from dayahead.aggregate.targets import targets_of
from dayahead.aggregate.window_items import WindowItems, items_by_window
from dayahead.config.baselines import MEMORY
from dayahead.config.changed_settings import Setting
from dayahead.core.columns import SESSION_ID
from dayahead.core.errors import DataError
from dayahead.core.phases import PhaseRow, phase, read_phases
from dayahead.metrics.metrics import Ranks, Values, main_metric, mean, target_metric
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.run import RunResults
from dayahead.outputs.tables import WindowResult, read_baselines, read_evidence
from dayahead.statistics.differences import BaselineComparison, compare_with_baseline
from dayahead.windows.folder import Role, WindowFolder
from dayahead.windows.metadata import WindowsManifest


@dataclass(frozen=True)
class Findings:
    """The content of a run's report."""

    settings: Mapping[str, Setting]
    """params.yaml, flat."""
    rows: Sequence[WindowResult]
    summary: Average
    outside: float
    """Share of all targets that were not among the candidates."""
    baselines: Sequence[BaselineComparison]
    """The counting baselines, and other runs if the report has some."""
    slicings: Sequence[Slicing]
    n_without_target: int
    """Sessions that were not evaluated, as they have no event of a type that is predicted."""
    without_target: Sequence[str]
    """Windows that were not evaluated, as none of their sessions has a target."""
    lists: ListAverage
    evidence: Mapping[str, float]
    """Weights of features; empty where the architecture has none."""
    profile: Sequence[PhaseRow]
    """Phases of the fit that was profiled, if one was."""
    listing: WindowsManifest
    items: Sequence[WindowItems]
    origin: Origin

    @property
    def architecture(self) -> str:
        """Name of the run's model."""
        return str(self.settings["model.architecture"])

    @property
    def has_ticks(self) -> bool:
        """Whether the model counted clicks within a window."""
        return _has_ticks(self.settings)

    @property
    def metric(self) -> str:
        """The metric of the conclusions."""
        return main_metric(self.summary.aod)


@dataclass(frozen=True)
class Folders:
    """The folders of a run's results and of its data."""

    results: Path
    windows: Path
    raw: Path


def find(
    folders: Folders,
    own: RunResults,
    settings: Mapping[str, Setting],
    beside: Mapping[str, RunResults] = MappingProxyType({}),
) -> Findings:
    """Collect the content of the report.

    Args:
        folders: folders of the run.
        own: results of the run.
        settings: params.yaml, flat: {"model.n_layer": 2, ...}.
        beside: results of other runs on the same targets, by name.

    Raises:
        DataError: the run's files disagree, or one is damaged.
        WindowError: the windows cannot be read.
    """
    results, folder = folders.results, WindowFolder(folders.windows)
    with phase("average"):
        summary = average(own.rows, [found.ranks for found in own.ranks])
    tables, others = _tables_and_ranks(results, settings, own, beside)
    _check_windows(folder, own)
    split = cast(Role, settings["evaluation.split"])
    with phase("slices"):
        items, slicings = _by_target(folder, split, own, others, main_metric(summary.aod))
    return Findings(
        settings=settings,
        rows=own.rows,
        summary=summary,
        outside=mean(own.every_rank == 0),
        baselines=[compare_with_baseline(own.rows, name, rows) for name, rows in tables.items()],
        slicings=slicings,
        n_without_target=_n_without_target(folder, split, own, settings),
        without_target=_without_target(folder, own, settings),
        lists=average_lists(results, [row.window for row in own.rows]),
        evidence=read_evidence(results / "evidence.csv"),
        profile=_profile(results),
        listing=folder.manifest,
        items=items,
        origin=origin_of(folders.raw, results, settings),
    )


def _n_without_target(
    folder: WindowFolder, split: Role, own: RunResults, settings: Mapping[str, Setting]
) -> int:
    if not settings.get("events.targets"):
        return 0
    windows = (window for window in folder.windows if window.name in own.targets)
    n_all = sum(len(folder.read(window, split, [SESSION_ID])) for window in windows)
    return n_all - sum(row.n_sessions for row in own.rows)


def _without_target(
    folder: WindowFolder, own: RunResults, settings: Mapping[str, Setting]
) -> list[str]:
    first, last = (settings.get(f"window.{name}") for name in ("first", "last"))
    names = [window.name for window in folder.windows]
    start = names.index(str(first)) if first in names else 0
    end = names.index(str(last)) if last in names else len(names) - 1
    expected = [
        name for name in names[start + 1 : end + 1] if name not in folder.statistics.fitted_on
    ]
    return [name for name in expected if name not in own.targets]


def _has_ticks(settings: Mapping[str, Setting]) -> bool:
    return settings["model.architecture"] == MEMORY and bool(settings.get("live.tick"))


def _tables_and_ranks(
    results: Path,
    settings: Mapping[str, Setting],
    own: RunResults,
    beside: Mapping[str, RunResults],
) -> tuple[dict[str, list[WindowResult]], dict[str, Mapping[str, Ranks]]]:
    """Read both tables of each counting baseline, by its name; those of other runs follow."""
    architecture, has_ticks = str(settings["model.architecture"]), _has_ticks(settings)
    tables = read_baselines(results, architecture, own.rows, has_ticks=has_ticks)
    read = partial(read_baseline_ranks, results, own=own.by_window, has_ticks=has_ticks)
    ranks = {name: read(name) for name in tables}
    more = {name: [*run.rows] for name, run in beside.items()}
    return tables | more, ranks | {name: run.by_window for name, run in beside.items()}


def _profile(results: Path) -> Sequence[PhaseRow]:
    path = results / "profile" / "phases.csv"
    return read_phases(path) if path.exists() else ()


def _check_windows(folder: WindowFolder, own: RunResults) -> None:
    unknown = {row.window for row in own.rows} - {window.name for window in folder.windows}
    if unknown:
        raise DataError(
            f"results/windows.csv: expected kept windows of {folder.folder}, found "
            f"{', '.join(sorted(unknown)[:5])}; run `dvc repro -f train`"
        )


def _by_target(
    folder: WindowFolder,
    split: Role,
    own: RunResults,
    others: Mapping[str, Mapping[str, Ranks]],
    metric: str,
) -> tuple[list[WindowItems], list[Slicing]]:
    """Read the windows once, for their items and for the groups of their targets."""
    items: list[WindowItems] = []
    sums: list[list[Values]] = []
    before = np.zeros(0, np.int64)
    for window, (about, counts) in zip(folder.windows, items_by_window(folder), strict=True):
        items.append(about)
        if (ranks := own.targets.get(window.name)) is not None:
            targets = targets_of(folder, window, split, ranks, before)
            every = [ranks.ranks, *(each[window.name] for each in others.values())]
            values = [target_metric(metric, each) for each in every]
            sums.append(sums_by_group(targets, values))
        before = counts
    return items, slicings_of(sums, list(others))
