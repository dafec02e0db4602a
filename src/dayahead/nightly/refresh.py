"""Refresh: may the model that was just fitted replace the published one?

The new model is evaluated on nothing yet: its first window is tomorrow's. What is known are the
ranks of the newest window by the model before it, of the same settings; they decide. The new model
itself only has to answer sessions, and to know the items.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dayahead.config.params import Params
from dayahead.core.errors import DataError
from dayahead.core.files import read_json
from dayahead.nightly.guards import Check, coverage_check, metric_checks, settings_check
from dayahead.nightly.saved_model import SavedModel
from dayahead.outputs.tables import WindowResult, read_baselines, read_windows
from dayahead.windows.folder import Window, WindowFolder

Open = Callable[[Path, WindowFolder, Params], SavedModel]


@dataclass(frozen=True)
class Refresh:
    """The new model of a night, with the results of the pipeline."""

    root: Path
    windows: WindowFolder
    params: Params
    refused: Collection[str]
    """Windows whose data were refused: they do not serve as a reference."""
    open: Open = SavedModel

    @property
    def models(self) -> Path:
        """Folder of the new model."""
        return self.root / "models"

    @property
    def newest(self) -> Window:
        """The newest window, on which the new model was fitted last."""
        return self.windows.windows[-1]

    @cached_property
    def rows(self) -> dict[str, WindowResult]:
        """windows.csv, by window."""
        path = self.root / "results" / "windows.csv"
        config = self.params.evaluation
        rows = read_windows(path, config.cutoffs, config.metrics)
        return {row.window: row for row in rows}

    @cached_property
    def baselines(self) -> dict[str, dict[str, WindowResult]]:
        """Tables of the counting baselines, by window."""
        found = read_baselines(
            self.root / "results",
            self.params.model.architecture,
            list(self.rows.values()),
            has_ticks=self.params.has_ticks,
        )
        return {name: {row.window: row for row in rows} for name, rows in found.items()}

    def require_newest(self) -> None:
        """Check that models/ is of the newest window.

        Raises:
            DataError: it is of another window.
        """
        fitted = read_json(self.models / "config.json")["window"]
        if fitted != self.newest.name:
            raise DataError(
                f"{self.models}: fitted up to {fitted}, expected {self.newest.name}; set "
                f"window.last to null and training.fit_last to true, and run again"
            )

    @property
    def metrics(self) -> dict[str, float]:
        """The metric of decisions in the newest window: the model's and the baselines'.

        Empty where no session of the window has a target.
        """
        if self.newest.name not in self.rows:
            return {}
        name, window = self.params.nightly.metric, self.newest.name
        tables = {"model": self.rows} | self.baselines
        return {model: rows[window].metrics[name] for model, rows in tables.items()}

    def checks(self, recorded: Mapping[str, float] | None) -> list[Check]:
        """Run all guards of the new model.

        `recorded` is the metric by window with the settings of the published model, if these are
        others.
        """
        config = self.params.nightly
        if self.newest.name not in self.rows:
            why = f"{self.newest.name}: no session has a target, so nothing can be evaluated"
            return [Check("targets", False, why, "the next window with targets decides")]
        names = [w.name for w in self.windows.windows if w.name in self.rows.keys() - self.refused]
        own, *baselines = (
            [rows[name].metrics[config.metric] for name in names]
            for rows in (self.rows, *self.baselines.values())
        )
        found = metric_checks(own, dict(zip(self.baselines, baselines, strict=True)), config)
        if recorded is not None:
            found.append(settings_check(dict(zip(names, own, strict=True)), recorded, config))
        model = self.open(self.models, self.windows, self.params)
        found.append(model.smoke_check(self.newest, config.smoke_sessions))
        if found[-1].passed:  # else it cannot be read
            found.append(coverage_check(model.coverage(self.newest), config))
        return found
