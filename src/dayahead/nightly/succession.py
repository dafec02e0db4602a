"""Succession: a challenger's settings against the champion's, over windows after its enrolment.

Both are fitted with several seeds. A trial is decided once, when its horizon is full; at half time
it can only end for futility. Nothing is tested in between, because repeated tests find false
winners. So do many trials, and therefore the trials of a year share one probability of a false
promotion, whatever their settings and names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dayahead.config.metric_names import BUILT_IN
from dayahead.config.model import FITTED
from dayahead.config.nightly import NightlyConfig
from dayahead.config.params import Params, flat_settings
from dayahead.core.fingerprints import fingerprint
from dayahead.nightly.history import Entry, State
from dayahead.statistics.intervals import interval
from dayahead.statistics.paired_tests import MetricComparison, compare

FALSE_PROMOTIONS: Final = 0.025
"""Maximum probability that a year's trials promote any challenger if none is better."""
YEAR: Final = timedelta(days=365)
Results = tuple[Sequence[Path], Sequence[Path]]
"""Results folders of the champion's runs and of the challenger's, which differ in their seeds."""
Run = tuple[str, dict[str, Any]]
"""The name of a run's folder, and the settings that the run changes."""


@dataclass(frozen=True)
class Trial:
    """A challenger against the champion."""

    name: str
    id: str
    settings: dict[str, Any]
    """Settings of the challenger, by name."""

    @classmethod
    def of(cls, name: str, champion: dict[str, Any], challenger: dict[str, Any]) -> "Trial":
        """Return the trial of these settings; changed settings are a new trial, enrolled again."""
        key = fingerprint({"champion": champion, "challenger": challenger})
        return cls(name, key[:12], challenger)

    def enrolment(self, evaluated: Sequence[str], config: NightlyConfig) -> Entry:
        """Return the entry that starts the trial after the newest evaluated window."""
        why = f"{self.name} is compared with the champion over the next {config.horizon} windows"
        error = _error(config)
        return self._entry("enrolled", evaluated[-1], why, settings=self.settings, error=error)

    def runs(self, changes: Mapping[str, Any], config: NightlyConfig) -> list[Run]:
        """Return the runs of the challenger, whose settings are these changes."""
        return _runs(self.id, changes, self.settings, config)

    def decision(
        self,
        state: State,
        evaluated: Sequence[str],
        results: Results,
        config: NightlyConfig,
    ) -> Entry | None:
        """Return the entry that ends the trial, or None while its horizon is not full.

        Args:
            state: state of the history.
            evaluated: windows that both were evaluated on, in order.
            results: results of all runs.
            config: the rules.
        """
        fresh, half = self._fresh(state, evaluated), config.horizon // 2
        if len(fresh) >= config.horizon:
            enrolled = state.of_trial("enrolled", self.id)
            known = enrolled.details if enrolled is not None else {}
            error = known.get("error", _error(config))
            return self._decide(fresh[: config.horizon], results, error, config)
        if len(fresh) >= half:
            metric, _ = _compared(fresh[:half], results, config)
            if metric.test.ci95 is not None and metric.test.ci95[1] < config.margin:
                found = _found(metric, fresh[:half], config)
                return self._lost("futile", fresh[half - 1], f"{found}; cannot be won any more")
        return None

    def is_open(self, state: State) -> bool:
        """Return whether the trial is enrolled and not decided yet."""
        is_enrolled = state.of_trial("enrolled", self.id) is not None
        return is_enrolled and state.of_trial("succession", self.id) is None

    def _fresh(self, state: State, evaluated: Sequence[str]) -> list[str]:
        """Return the windows evaluated since the enrolment, without refused ones."""
        enrolled = state.of_trial("enrolled", self.id)
        after = evaluated[-1] if enrolled is None else enrolled.window
        return [w for w in evaluated if w > after and w not in state.refused_windows]

    def _decide(
        self, windows: Sequence[str], results: Results, error: float, config: NightlyConfig
    ) -> Entry:
        metric, recall = _compared(windows, results, config)
        low, _ = interval(metric.test.difference, metric.test.parts, error)
        found = (
            f"{_found(metric, windows, config)}, at least {low:+.4f} with an error of "
            f"{100 * error:.2g} %"
        )
        if low <= config.margin:
            why = f"{found}; not above {config.margin:g}"
            return self._lost("lost", windows[-1], why)
        if recall.b < (1 - config.max_recall_loss) * recall.a:
            why = f"{found}; {recall.name} falls from {recall.a:.4f} to {recall.b:.4f}"
            return self._lost("lost", windows[-1], why)
        why = f"{self.name} succeeds: {found}"
        return self._entry("succession", windows[-1], why, outcome="won", settings=self.settings)

    def _lost(self, outcome: str, window: str, found: str) -> Entry:
        why = (
            f"the champion stays: {found}. Remove {self.name} from nightly.challengers, or change "
            f"it"
        )
        return self._entry("succession", window, why, outcome=outcome)

    def _entry(self, kind: Any, window: str, why: str, **details: object) -> Entry:  # noqa: ANN401
        known = {"trial": self.id, "challenger": self.name}
        return Entry(kind=kind, window=window, why=why, details=known | details)


def waiting(state: State, window: str, config: NightlyConfig) -> str:
    """Return why no trial can be enrolled after this window, empty if one can."""
    newest = datetime.fromisoformat(window)
    since = [
        entry
        for entry in state.entries
        if entry.kind == "enrolled" and newest - datetime.fromisoformat(entry.window) < YEAR
    ]
    error = _error(config)
    spent = sum(entry.details.get("error", error) for entry in since)
    # Tolerance for rounding: `trials_per_year` equal errors may sum to slightly more.
    if spent + error <= FALSE_PROMOTIONS * (1 + 1e-9):
        return ""
    free = datetime.fromisoformat(since[0].window) + YEAR
    return (
        f"{len(since)} trials were enrolled in the 365 days before {window}, and each one more "
        f"makes a false winner likelier (nightly.trials_per_year: {config.trials_per_year}); the "
        f"next may be enrolled from {free:%Y-%m-%d} on"
    )


def champion_runs(settings: Mapping[str, Any], config: NightlyConfig) -> list[Run]:
    """Return the champion's runs with seeds other than that of its nights."""
    name = f"champion-{fingerprint(dict(settings))[:12]}"
    return _runs(name, {}, settings, config)[1:]


def _runs(
    name: str, changes: Mapping[str, Any], settings: Mapping[str, Any], config: NightlyConfig
) -> list[Run]:
    first = settings["training.seed"]
    return [
        (f"{name}-{seed}", {**changes, "training": {**changes.get("training", {}), "seed": seed}})
        for seed in range(first, first + config.seeds)
    ]


def _error(config: NightlyConfig) -> float:
    """Return the probability of a false promotion that one trial has."""
    return FALSE_PROMOTIONS / config.trials_per_year


def _compared(
    windows: Sequence[str], results: Results, config: NightlyConfig
) -> tuple[MetricComparison, MetricComparison]:
    """Compare the two over these windows; return the metric of decisions, and recall."""
    cutoff = config.cutoff
    champion, challenger = results
    packaged = {config.metric.rpartition("_at_")[0]} - {*BUILT_IN}
    comparison = compare(champion, challenger, [cutoff], windows, [*packaged])
    by_name = {metric.name: metric for metric in comparison.metrics}
    return by_name[config.metric], by_name[f"recall_at_{cutoff}"]


def champion_settings(params: Params) -> dict[str, Any]:
    """Return the settings that say what is fitted and predicted, as the history holds them.

    Without ticks the section `live` is left out, and so are settings of `events` that are null,
    because older histories lack them.
    """
    sections = {*FITTED, "events"} - ({"live"} if not params.has_ticks else set())
    chosen = {
        name: value
        for name, value in flat_settings(params).items()
        if (section := name.partition(".")[0]) in sections
        and not (section == "events" and value is None)
    }
    return {n: list(v) if isinstance(v, tuple) else v for n, v in sorted(chosen.items())}


def _found(metric: MetricComparison, windows: Sequence[str], config: NightlyConfig) -> str:
    low, high = metric.test.ci95 or (float("nan"), float("nan"))
    return (
        f"{metric.name} {metric.b:.4f} against the champion's {metric.a:.4f} over {len(windows)} "
        f"windows and {config.seeds} seeds each, difference {metric.test.difference:+.4f} (95 % "
        f"interval {low:+.4f} to {high:+.4f})"
    )
