"""Succession: a challenger's settings against the champion's, over windows after its enrolment.

A trial is decided once, when its horizon is full; at half of it, it can only end early because it
cannot be won any more. Nothing is looked at in between: who tests every night finds a winner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayahead.comparison.paired_tests import MetricComparison, compare
from dayahead.config.model import FITTED
from dayahead.config.nightly import NightlyConfig
from dayahead.config.params import Params, flat_settings
from dayahead.core.fingerprints import fingerprint
from dayahead.nightly.history import Entry, State


@dataclass(frozen=True)
class Trial:
    """A challenger against the champion."""

    name: str
    id: str
    settings: dict[str, Any]
    """Of the challenger, by name."""

    @classmethod
    def of(cls, name: str, champion: dict[str, Any], challenger: dict[str, Any]) -> "Trial":
        """Return the trial of these settings; others are another trial, enrolled again."""
        key = fingerprint({"champion": champion, "challenger": challenger})
        return cls(name, key[:12], challenger)

    def enrolment(self, evaluated: Sequence[str], config: NightlyConfig) -> Entry:
        """Return the entry that starts the trial after the newest evaluated window."""
        why = f"{self.name} is compared with the champion over the next {config.horizon} windows"
        return self._entry("enrolled", evaluated[-1], why, settings=self.settings)

    def decision(
        self,
        state: State,
        evaluated: Sequence[str],
        results: tuple[Path, Path],
        config: NightlyConfig,
    ) -> Entry | None:
        """Return the entry that ends the trial, or None while its horizon is not full.

        Args:
            state: of the history.
            evaluated: windows that both were evaluated on, in order.
            results: results folder of the champion and of the challenger.
            config: the rules.
        """
        fresh, half = self._fresh(state, evaluated), config.horizon // 2
        if len(fresh) >= config.horizon:
            return self._decide(fresh[: config.horizon], results, config)
        if len(fresh) >= half:
            metric, _ = _compared(fresh[:half], results, config)
            if metric.test.ci95 is not None and metric.test.ci95[1] < config.margin:
                return self._lost(fresh[half - 1], metric, config, "cannot be won any more")
        return None

    def is_open(self, state: State) -> bool:
        """Return whether the trial is not decided yet."""
        return state.of_trial("succession", self.id) is None

    def _fresh(self, state: State, evaluated: Sequence[str]) -> list[str]:
        """Return the windows evaluated since the enrolment; refused ones decide nothing."""
        enrolled = state.of_trial("enrolled", self.id)
        after = evaluated[-1] if enrolled is None else enrolled.window
        return [w for w in evaluated if w > after and w not in state.refused_windows]

    def _decide(
        self, windows: Sequence[str], results: tuple[Path, Path], config: NightlyConfig
    ) -> Entry:
        metric, recall = _compared(windows, results, config)
        least = (1 - config.max_recall_loss) * recall.a
        if metric.test.ci95 is None or metric.test.ci95[0] <= config.margin:
            return self._lost(windows[-1], metric, config, f"not above {config.margin:g}")
        if recall.b < least:
            why = f"{recall.name} falls from {recall.a:.4f} to {recall.b:.4f}"
            return self._lost(windows[-1], metric, config, why)
        why = f"{self.name} succeeds: {_found(metric, len(windows))}"
        return self._entry("succession", windows[-1], why, outcome="won", settings=self.settings)

    def _lost(
        self, window: str, metric: MetricComparison, config: NightlyConfig, reason: str
    ) -> Entry:
        n_windows = metric.better + metric.worse + metric.equal
        why = (
            f"the champion stays: {_found(metric, n_windows)}; {reason}. Remove {self.name} from "
            f"nightly.challengers, or change it"
        )
        is_early = n_windows < config.horizon
        return self._entry("succession", window, why, outcome="futile" if is_early else "lost")

    def _entry(self, kind: Any, window: str, why: str, **details: object) -> Entry:  # noqa: ANN401
        known = {"trial": self.id, "challenger": self.name}
        return Entry(kind=kind, window=window, why=why, details=known | details)


def _compared(
    windows: Sequence[str], results: tuple[Path, Path], config: NightlyConfig
) -> tuple[MetricComparison, MetricComparison]:
    """Compare the two over these windows; return the metric of decisions, and recall."""
    cutoff = int(config.metric.rpartition("_")[2])
    champion, challenger = results
    comparison = compare([champion], [challenger], [cutoff], windows)
    by_name = {metric.name: metric for metric in comparison.metrics}
    return by_name[config.metric], by_name[f"recall_at_{cutoff}"]


def champion_settings(params: Params) -> dict[str, Any]:
    """Return the settings that a challenger may change, as the history holds them."""
    flat = flat_settings(params)
    chosen = {name: value for name, value in flat.items() if name.partition(".")[0] in FITTED}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in sorted(chosen.items())}


def _found(metric: MetricComparison, n_windows: int) -> str:
    low, high = metric.test.ci95 or (float("nan"), float("nan"))
    return (
        f"{metric.name} {metric.b:.4f} against the champion's {metric.a:.4f} over {n_windows} "
        f"windows, difference {metric.test.difference:+.4f} (95 % interval {low:+.4f} to "
        f"{high:+.4f})"
    )
