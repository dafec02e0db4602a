"""Refresh: may the model that was just fitted replace the published one?

The new model is evaluated on nothing yet: its first window is tomorrow's. What is known are the
ranks of the newest window by the model before it, of the same settings; they decide. The new model
itself only has to pass a smoke test.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dayahead.config.params import Params
from dayahead.core.errors import DataError, DayaheadError
from dayahead.core.files import read_json
from dayahead.metrics.metrics import mean, target_metric
from dayahead.nightly.guards import (
    Check,
    champion_check,
    coverage_check,
    is_certainly_better,
    list_checks,
    not_checked,
    refresh_check,
)
from dayahead.nightly.metric_series import MetricSeries
from dayahead.nightly.saved_model import SavedModel
from dayahead.outputs.lists import read_lists
from dayahead.outputs.tables import WindowResult, read_baselines, read_ranks, read_windows
from dayahead.statistics.differences import difference_test
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
    accepted: Mapping[str, str]
    """By slow guard, the window in which a loss beyond its limit was published."""
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
    def tick(self) -> int | str:
        """The setting live.tick, 0 where the model does not count within a window."""
        return self.params.live.tick if self.params.has_ticks else 0

    @property
    def counting(self) -> dict[str, Any]:
        """With ticks, until when the new model has counted, and by which rules, to record."""
        if not self.tick:
            return {}
        end = datetime.fromtimestamp(self.windows.ends[self.newest.name] / 1_000_000, UTC)
        rules = {"tick": self.tick, "session_gap": self.params.live.session_gap}
        return {"live": {"until": f"{end:%Y-%m-%d %H:%M} UTC", **rules}}

    @property
    def metrics(self) -> dict[str, float]:
        """The metric of decisions in the newest window: the champion's and the baselines'.

        Empty where no session of the window has a target.
        """
        if self.newest.name not in self.rows:
            return {}
        name, window = self.params.nightly.metric, self.newest.name
        tables = {"champion": self.rows} | self.baselines
        return {model: rows[window].metrics[name] for model, rows in tables.items()}

    def checks(self, published: Path | None) -> list[Check]:
        """Run all guards of the new model.

        `published` is the model that is served, unless the ranks of the newest window are its own.
        """
        config = self.params.nightly
        if self.newest.name not in self.rows:
            why = f"{self.newest.name}: no session has a target, so nothing can be evaluated"
            return [Check("targets", False, why, "the next window with targets decides")]
        model = self.open(self.models, self.windows, self.params)
        champion, is_better = None, False
        if published is not None:
            champion, is_better = self._champion(published)
        found = self.series.checks(config, self.accepted, is_better=is_better)
        if champion is not None:
            found.append(champion)
        found += self._list_checks()
        found.append(model.smoke_check(self.newest, config.smoke_sessions))
        # Only a model that answers at all can be evaluated further.
        if found[-1].passed:
            after = target_metric(config.metric, model.ranks(self.newest).ranks)
            own = self.rows[self.newest.name].metrics[config.metric]
            found += [
                refresh_check(own, mean(after), config),
                coverage_check(model.coverage(self.newest), config),
            ]
        return found

    def _list_checks(self) -> list[Check]:
        """Check the lists of the newest window, if there is a limit."""
        if not self.params.nightly.list_limits:
            return []
        rows = {row.window: row.figures for row in read_lists(self.root / "results")}
        return list_checks(rows.get(self.newest.name, {}), self.params.nightly)

    def _champion(self, published: Path) -> tuple[Check, bool]:
        """Check against the published model; return also whether that is significantly worse."""
        config = self.params.nightly
        name = published.resolve().name
        try:
            model = self.open(published, self.windows, self.params)
            theirs = model.ranks(self.newest)
        except DayaheadError as error:
            why = f"the published {name} cannot be evaluated any more ({error})"
            return not_checked("champion_margin", why), False
        own = read_ranks(self.root / "results", self.newest.name)
        if not np.array_equal(theirs.targets, own.targets):
            why = f"the published {name} predicts other targets than the settings (events.targets)"
            return not_checked("champion_margin", why), False
        old, new = (target_metric(config.metric, each.ranks) for each in (theirs, own))
        # One run each, with targets in place of windows: there is one window only.
        difference = difference_test(old[None], new[None])
        if model.tick != self.tick:
            name += f" ({_counting(model.tick)}; that of the settings {_counting(self.tick)})"
        check = champion_check(difference, len(new), name, config)
        return check, is_certainly_better(difference)

    @property
    def series(self) -> MetricSeries:
        """The metric in the windows that serve as reference, and in the newest."""
        metric = self.params.nightly.metric
        measures = [w.name for w in self.windows.windows if w.name not in self.refused]
        names = [name for name in measures if name in self.rows]
        own, *baselines = (
            [rows[name].metrics[metric] for name in names]
            for rows in (self.rows, *self.baselines.values())
        )
        return MetricSeries(names, own, dict(zip(self.baselines, baselines, strict=True)))


def _counting(tick: int | str) -> str:
    return f"counts every {tick}" if tick else "stands still within the window"
