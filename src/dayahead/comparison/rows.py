"""Rows of a table of results: runs that differ in their seeds alone are one row."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from dayahead.comparison.runs import check_run_names
from dayahead.config.params import OUTSIDE
from dayahead.config.sections import Settings, without_sections
from dayahead.core.errors import ComparisonError
from dayahead.tracking.run_lookup import FoundRun, run_of
from dayahead.tracking.runs import setting_text

SEED: Final = "training.seed"
SAME: Final = (
    "dataset",
    "evaluation.split",
    "evaluation.positions",
    "evaluation.candidates",
    "events.targets",
    "preprocess.fit_windows",
)
"""Settings in which runs of one table must not differ."""
WITHOUT_EFFECT: Final = (*OUTSIDE, "compute", "profile", "tracking")
"""Sections that make no other row: where and how a study runs, and what is recorded of it."""
Names = Literal["runs", "settings"]
NamedRuns = tuple[str, Sequence[str]]
"""The name of a row, empty without one, and its runs."""


@dataclass(frozen=True)
class Row:
    """A setting, with one run or several."""

    name: str
    runs: Mapping[str, FoundRun]
    """Runs by their names; they differ in their seeds."""

    @property
    def settings(self) -> Settings | None:
        """Settings that decide about results, without the seed; None: unknown for some run."""
        known = [_effective(run) for run in self.runs.values()]
        return None if None in known else known[0]


def parse_row(text: str) -> NamedRuns:
    """Read a row of a command line: RUN, or several runs as RUN,RUN or NAME=RUN,RUN."""
    name, is_named, runs = text.partition("=")
    if not is_named or os.path.exists(text):  # noqa: PTH110 - Path.exists raises for a long text
        name, runs = "", text
    return " ".join(name.split()), [run.strip() for run in runs.split(",")]


def rows_of(given: Sequence[NamedRuns], into: Path, names: Names = "runs") -> list[Row]:
    """Find runs and join those that are one row of a table.

    Args:
        given: rows. Those of one run and without a name that have equal settings but the seed are
            joined.
        into: folder for what has to be fetched.
        names: what rows are called that have no name: the names of the runs, or the settings in
            which rows differ.

    Raises:
        ComparisonError: a run has no results or is named twice, two rows have one name, runs of a
            row differ in more than the seed or in nothing, or the runs differ in one of `SAME`.
    """
    check_run_names([run for _, runs in given for run in runs])
    rows: list[Row] = []
    for number, (name, runs) in enumerate(given):
        found = {run: run_of(run, into / f"{number}-{n}") for n, run in enumerate(runs)}
        rows.append(Row(name, found))
    rows = _joined(rows)
    _check_rows(rows)
    called = _names(rows, names)
    for first, second in pairwise(sorted(called)):
        if first == second:
            raise ComparisonError(
                f"{first}: two rows have this name; name rows as in NAME=RUN1,RUN2"
            )
    return [Row(name, row.runs) for name, row in zip(called, rows, strict=True)]


def _effective(run: FoundRun) -> Settings | None:
    if run.settings is None:
        return None
    found = without_sections(run.settings, WITHOUT_EFFECT)
    return {key: value for key, value in found.items() if key != SEED}


def _joined(rows: Sequence[Row]) -> list[Row]:
    """Join rows of one unnamed run each that have equal settings."""
    joined: list[Row] = []
    for row in rows:
        is_single, settings = not row.name and len(row.runs) == 1, row.settings
        alike = [
            number
            for number, each in enumerate(joined)
            if is_single and settings is not None and not each.name and each.settings == settings
        ]
        if alike:
            joined[alike[0]] = Row("", {**joined[alike[0]].runs, **row.runs})
        else:
            joined.append(row)
    return joined


def _check_rows(rows: Sequence[Row]) -> None:
    runs = {name: run for row in rows for name, run in row.runs.items()}
    known = [(name, run.settings) for name, run in runs.items() if run.settings is not None]
    for name, settings in known[1:]:
        first, wanted = known[0]
        for key in SAME:
            if settings.get(key) != wanted.get(key):
                raise ComparisonError(
                    f"{first} and {name} cannot be in one table: {key} is "
                    f"{setting_text(wanted.get(key))} in {first} and "
                    f"{setting_text(settings.get(key))} in {name}; leave one of them out"
                )
    for row in rows:
        _check_seeds(row)


def _check_seeds(row: Row) -> None:
    """Check that the runs of a row differ in their seeds and in nothing else."""
    first, *others = row.runs
    wanted = _effective(row.runs[first])
    seeds: dict[object, str] = {}
    for name, run in row.runs.items():
        settings = _effective(run)
        if settings is None or wanted is None or run.settings is None:
            continue
        if others and (differing := _differing([wanted, settings])):
            raise ComparisonError(
                f"{first},{name}: runs of one row must differ in {SEED} alone, and these differ "
                f"in {', '.join(differing[:5])}; name them as rows of their own"
            )
        twin = seeds.setdefault(run.settings.get(SEED), name)
        if twin != name:
            raise ComparisonError(
                f"{twin} and {name} have the same settings and the same {SEED}; leave one of them "
                f"out, or name them as rows of their own: before={twin} after={name}"
            )


def _differing(settings: Sequence[Settings]) -> list[str]:
    """Return the names of the settings that are not equal everywhere."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if any(each.get(key) != settings[0].get(key) for each in settings)]


def _names(rows: Sequence[Row], names: Names) -> list[str]:
    known = [row.settings for row in rows if row.settings is not None]
    short = _short_names({key for each in known for key in each})
    differing = {key: short[key] for key in (_differing(known) if known else ())}
    return [
        row.name
        or (names == "settings" and row.settings and _called(row.settings, differing))
        or _common_name([*row.runs])
        for row in rows
    ]


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each key, or the whole key where another section has that part too.

    The keys {"model.n_layer", "task.name", "loss.name"} are n_layer, task.name and loss.name.
    """
    last = {key: key.rpartition(".")[2] for key in keys}
    counts = Counter(last.values())
    return {key: name if counts[name] == 1 else key for key, name in last.items()}


def _called(settings: Settings, keys: Mapping[str, str]) -> str:
    """Return settings as `n_layer=2, loss.name=gbce`; `keys` are those shown, and how."""
    return ", ".join(
        f"{name}={setting_text(settings[key])}" for key, name in keys.items() if key in settings
    )


def _common_name(runs: Sequence[str]) -> str:
    """Return what names of runs have in common: gru4rec of gru4rec-1 and gru4rec-2."""
    if len(runs) == 1:
        return runs[0]
    prefix = os.path.commonprefix(runs)  # noqa: RUF071 - names, not paths
    common = re.sub(r"[-_./]+\d*$", "", prefix)
    return common or ",".join(runs)
