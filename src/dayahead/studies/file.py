"""studies/<name>.yaml: the rows of a table, their settings and seeds, as runs to make."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.comparison.rows import SAME, SEED
from dayahead.config.loading import STRICT, Seed, read_yaml, validated
from dayahead.config.params import checked_params
from dayahead.config.sections import Settings, flattened, merged
from dayahead.core.errors import ConfigError
from dayahead.presets import named_file, preset_settings
from dayahead.tracking.runs import setting_text

Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StudyRow:
    """A row of the table: a preset, other settings, or both; neither: those of params.yaml."""

    preset: str | None = None
    """A name in presets/, such as g1/gru4rec."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of this row, as in a preset; they override those of the study and the preset."""
    seeds: Seeds | None = None
    """null: those of the study."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StudyFile:
    """The content of studies/<name>.yaml."""

    description: str
    """What is compared."""
    rows: Annotated[dict[str, StudyRow], Field(min_length=1)]
    """Rows by their names in the table."""
    seeds: Seeds = (1, 2, 3)
    """Seeds with which each row is run (training.seed)."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of every run, such as dataset and window; they override those of presets."""


@plain_dataclass(frozen=True)
class PlannedRun:
    """One seed of one row."""

    row: str
    seed: int
    experiment: str
    """Its name as a DVC experiment."""
    changed: Settings
    """Settings that it changes, by name."""
    settings: Settings
    """All of them."""

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.row}, seed {self.seed}"


def study_path(name: str, folder: Path) -> Path:
    """Return the path of a study: `name` in `folder`, or a file's path.

    Raises:
        ConfigError: there is none, or its name cannot be that of experiments.
    """
    path = named_file(name, folder, "study")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", path.stem):
        raise ConfigError(
            f"{path}: its name is that of experiments; expected letters, digits, - and _ only, "
            f"such as table-2.yaml"
        )
    return path


def planned_runs(path: Path, root: Path) -> list[PlannedRun]:
    """Return the runs of a study over the project `root`, a seed of all rows before the next.

    Raises:
        ConfigError: the file breaks a rule, a preset is missing, settings are invalid, rows would
            be evaluated on other targets, or seeds or names are there twice.
    """
    file = validated(StudyFile, read_yaml(path), str(path))
    base = read_yaml(root / "params.yaml")
    runs: list[tuple[int, PlannedRun]] = []
    for name, row in file.rows.items():
        where = f"{path}: rows.{name}"
        seeds = row.seeds or file.seeds
        if len({*seeds}) < len(seeds):
            raise ConfigError(f"{where}: seeds: {', '.join(map(str, seeds))}: name each once")
        changed = _changed(file, row, root / "presets", where)
        runs += enumerate(_planned(name, seed, changed, base, path) for seed in seeds)
    _check_alike([run for _, run in runs], path)
    return [run for _, run in sorted(runs, key=lambda each: each[0])]


def _changed(file: StudyFile, row: StudyRow, presets: Path, where: str) -> Settings:
    found: Settings = {}
    for settings in (
        {} if row.preset is None else preset_settings(row.preset, presets),
        flattened(file.settings),
        flattened(row.settings),
    ):
        if SEED in settings:
            raise ConfigError(f"{where}: {SEED} is set by seeds; leave it out of settings")
        found |= settings
    return found


def _planned(
    row: str, seed: int, changed: Settings, base: Mapping[str, Any], path: Path
) -> PlannedRun:
    own = changed | {SEED: seed}
    sections = merged(base, own)
    checked_params(sections, f"{path}: rows.{row}")
    slug = re.sub(r"[^A-Za-z0-9]+", "-", row).strip("-").lower()
    if not slug or "=" in row:
        raise ConfigError(f"{path}: rows.{row}: expected a name with a letter or digit, without =")
    return PlannedRun(row, seed, f"{path.stem}-{slug}-{seed}", own, flattened(sections))


def _check_alike(runs: Sequence[PlannedRun], path: Path) -> None:
    """Check that all runs are evaluated on the same targets, and that no two have one name."""
    first, names = runs[0], {run.experiment: run.row for run in reversed(runs)}
    for run in runs:
        if names[run.experiment] != run.row:
            raise ConfigError(
                f"{path}: rows {names[run.experiment]} and {run.row} would have the same "
                f"experiments, {run.experiment}; name them by other letters or digits"
            )
        differing = [
            key
            for key, value in run.settings.items()
            if (key in SAME or key.startswith("window.")) and value != first.settings.get(key)
        ]
        if differing:
            found = "; ".join(
                f"{key} is {setting_text(run.settings[key])}, and "
                f"{setting_text(first.settings.get(key))} in {first.row}"
                for key in differing
            )
            raise ConfigError(
                f"{path}: rows.{run.row}: {found}; one table needs the same targets: set "
                f"{', '.join(differing)} in settings of the study, which override those of presets"
            )
