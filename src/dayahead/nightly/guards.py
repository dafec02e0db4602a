"""Guards: checks of a new window and of a new model, with advice for those that fail."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from dayahead.config.nightly import NightlyConfig
from dayahead.metrics.lists import Figures
from dayahead.metrics.metrics import mean
from dayahead.nightly.drift import MIN_BEFORE, Change, Drift, SilenceChange
from dayahead.statistics.differences import Difference

_SOURCE = (
    "if the log is wrong, replace its file by a corrected one; if the change is real, raise the "
    "setting; then run again"
)
DATA_GUARDS = (
    "max_session_change",
    "max_new_items",
    "max_popularity_drift",
    "max_top_item",
    "max_silence",
    "max_catalogue_growth",
)
"""Guards of the data, in the order in which they are checked."""
_LISTS = (
    "the model shows few items to nearly all sessions; look at the lists in results/report.html, "
    "and at results/shown/ for the items; or change the setting"
)
_BETTER = "with confidence better than the published model"


@dataclass(frozen=True)
class Check:
    """The outcome of one guard."""

    guard: str
    passed: bool
    why: str
    """What was found, and if the guard refuses, by how much."""
    advice: str = ""
    """What to do if it refuses."""
    value: float | None = None
    limit: float | None = None
    is_excused: bool = False
    """Whether it passed for another reason although its value exceeds the limit."""
    checked: bool = True
    """False where there is nothing to compare with, or no limit: it refuses nothing then."""

    def as_json(self) -> dict[str, Any]:
        """Return the check as the history holds it."""
        fields = asdict(self)
        del fields["is_excused"]
        if self.checked:
            del fields["checked"]  # as in older histories, where every guard listed was checked
        return {name: value for name, value in fields.items() if value not in (None, "")}

    def excused(self, reason: str) -> "Check":
        """Return the check as passed, for this reason if it failed."""
        if self.passed:
            return self
        return replace(self, passed=True, why=f"{self.why}; {reason}", advice="", is_excused=True)


def not_checked(guard: str, why: str, value: float | None = None) -> Check:
    """Return the outcome of a guard that was not checked, with the reason."""
    return Check(guard, True, why, value=value, checked=False)


def _at_most(guard: str, value: float, limit: float | None, what: str, advice: str) -> Check:
    """Check a value against its maximum, the setting nightly.<guard>."""
    if limit is None:
        return not_checked(guard, f"nightly.{guard} is null; {what}", value)
    if value <= limit:
        return Check(guard, True, f"{what}; at most {limit:g}", value=value, limit=limit)
    why = f"{what}, {value - limit:.3g} above nightly.{guard} ({limit:g})"
    return Check(guard, False, why, advice, value, limit)


def _at_least(guard: str, value: float, limit: float | None, what: str, advice: str) -> Check:
    """Check a value against its minimum, the setting nightly.<guard>."""
    if limit is None:
        return not_checked(guard, f"nightly.{guard} is null; {what}", value)
    if value >= limit:
        return Check(guard, True, f"{what}; at least {limit:.0%}", value=value, limit=limit)
    why = f"{what}, {limit - value:.2%} below nightly.{guard} ({limit:g})"
    return Check(guard, False, why, advice, value, limit)


def data_checks(drift: Drift | None, window: str, config: NightlyConfig) -> list[Check]:
    """Check a new window's data against the windows before it."""
    if drift is None:
        why = f"{window}: too few windows before it to compare with"
        return [not_checked(guard, why) for guard in DATA_GUARDS]
    sessions, top = drift.sessions, drift.top_item
    return [
        _at_most(
            "max_session_change", sessions.excess, config.max_session_change,
            f"{window}: {sessions.value:.3g} x the sessions expected of it, at most "
            f"{sessions.usual:.3g} x up or down before: {sessions.excess:.3g} x as far as usual",
            _SOURCE,
        ),
        _change_check(
            "max_new_items", drift.new_items, config.max_new_items, window,
            "{0:.1%} of the events are on items that no earlier window has, {1:.1%} at most before",
            f"were the items renumbered? {_SOURCE}",
        ),
        _change_check(
            "max_popularity_drift", drift.popularity, config.max_popularity_drift, window,
            "item popularity is {0:.3f} from that before (0 alike, 1 disjoint), {1:.3f} at most "
            "before, equally far apart", _SOURCE,
        ),
        _change_check(
            "max_top_item", top, config.max_top_item, window,
            "{0:.1%} of the events are on the most frequent item, {1:.1%} at most before",
            f"do bots click it? {_SOURCE}",
        ),
        _silence_check(drift.silence, window, config),
        _at_most(
            "max_catalogue_growth", drift.growth, config.max_catalogue_growth,
            f"{window}: the catalogue grew by {drift.growth:.1%}", _SOURCE,
        ),
    ]  # fmt: skip


def _change_check(
    guard: str, change: Change | None, limit: float | None, window: str, what: str, advice: str
) -> Check:
    """Check a change; `what` describes it, with its value and what is usual as {0} and {1}."""
    if change is None:
        return not_checked(guard, f"{window}: no two windows before are as far apart")
    found = what.format(change.value, change.usual)
    return _at_most(
        guard, change.excess, limit, f"{window}: {found}: {change.excess:.2f} of the way to 1",
        advice,
    )  # fmt: skip


def _silence_check(silence: SilenceChange, window: str, config: NightlyConfig) -> Check:
    start, end = (f"{time:%Y-%m-%dT%H:%MZ}" for time in (silence.start, silence.end))
    what = (
        f"no click from {start} to {end}, where others have {{0:.1%}} of theirs, {{1:.1%}} at most "
        f"before or by chance"
    )
    advice = f"was the file cut, or are hours missing? {_SOURCE}"
    return _change_check("max_silence", silence, config.max_silence, window, what, advice)


def fall_check(
    value: float, before: Sequence[float], config: NightlyConfig, *, is_better: bool = False
) -> Check:
    """Check that the metric has not fallen too far below its median in the windows before.

    A fall does not hold back a model that is significantly better than the published one
    (`is_better`).
    """
    guard = "max_fall"
    if len(before) < MIN_BEFORE:
        return not_checked(guard, f"fewer than {MIN_BEFORE} windows before", value)
    usual = median(before)
    fall = max(0.0, 1 - value / usual) if usual else 0.0
    found = _at_most(
        guard, fall, config.max_fall,
        f"{config.metric} {value:.4f}, {fall:.1%} below its median {usual:.4f}",
        "look at the window in results/report.html; the published model stays, and the next "
        "window decides again",
    )  # fmt: skip
    return found.excused(_BETTER) if is_better else found


def slow_check(
    guard: str,
    levels: tuple[float, float] | None,
    what: str,
    config: NightlyConfig,
    *,
    is_better: bool = False,
) -> Check:
    """Check that a level of the newest windows is not too far below that of the best month.

    `levels` are these two. `max_fall` misses a slow decline, because its median declines too.
    """
    if levels is None:
        return not_checked(guard, f"{what}: less than a month of windows before")
    now, best = levels
    fall = max(0.0, 1 - now / best) if best else 0.0
    found = _at_most(
        guard, fall, getattr(config, guard),
        f"{what} {now:.4g} in the newest {config.windows} windows, {fall:.1%} below its best "
        f"month's {best:.4g}",
        f"look in results/report.html from where on it falls; to accept the loss, publish one "
        f"night with a raised nightly.{guard}: it is evaluated from there on",
    )  # fmt: skip
    return found.excused(_BETTER) if is_better else found


def baseline_check(
    own: Sequence[float], baselines: Mapping[str, Sequence[float]], config: NightlyConfig
) -> Check:
    """Check the mean over windows against that of the best counting baseline."""
    guard, margin = "baseline_margin", config.baseline_margin
    means = {name: mean(values) for name, values in baselines.items()}
    best = max(means, key=lambda name: means[name])
    found = mean(own)
    what = (
        f"{config.metric} over {len(own)} windows: {found:.4f}, {best} {means[best]:.4f} "
        f"({found - means[best]:+.4f})"
    )
    lack = means[best] - found
    return _at_most(
        guard, lack, margin, what,
        "serve the counting baseline, or enrol settings that learn more as a challenger",
    )  # fmt: skip


def champion_check(
    difference: Difference, n_targets: int, name: str, config: NightlyConfig
) -> Check:
    """Check that the settings' model is not worse than an older published one, with confidence.

    Args:
        difference: in the metric over the targets of the new window, from the published model to
            that of the settings, fitted up to the window before it.
        n_targets: number of these targets.
        name: name of the published model.
        config: the limits.
    """
    guard = "champion_margin"
    what = f"{config.metric} {difference.difference:+.4f} against the published {name}"
    if difference.ci95 is None:
        return not_checked(guard, f"{what}: too few targets ({n_targets}) to tell")
    low, high = difference.ci95
    what += f" (95 % interval over {n_targets:,} targets {low:+.4f} to {high:+.4f})"
    return _at_most(
        guard, -high, config.champion_margin, what,
        "the published model stays; look for what changed in the newest windows, or roll back the "
        "settings",
    )  # fmt: skip


def is_certainly_better(difference: Difference) -> bool:
    """Return whether a difference is above 0 with 95 % confidence."""
    return difference.ci95 is not None and difference.ci95[0] > 0


def refresh_check(before: float, after: float, config: NightlyConfig) -> Check:
    """Check that the new model is no worse on a window it has seen than the one before it.

    A smoke test: damaged weights or a fit that went wrong fail it.
    """
    fall = max(0.0, 1 - after / before) if before else 0.0
    return _at_most(
        "max_refresh_fall", fall, config.max_refresh_fall,
        f"smoke test: {config.metric} {after:.4f} on the window just fitted, {before:.4f} before",
        "the fit went wrong; see the training loss in results/windows.csv, and run "
        "`dvc repro -f train`",
    )  # fmt: skip


def list_checks(figures: Figures, config: NightlyConfig) -> list[Check]:
    """Check what the lists of the newest window show; no check without a limit.

    `figures` are those of the window in lists.csv.
    """
    k = config.cutoff
    limits, checks = config.list_limits, []
    if (limit := limits.get("min_list_coverage")) is not None:
        value = figures.get(f"coverage_at_{k}") or 0.0
        what = f"lists of {k} show {value:.1%} of the items that they could"
        checks.append(_at_least("min_list_coverage", value, limit, what, _LISTS))
    if (limit := limits.get("max_list_gini")) is not None:
        found = figures.get(f"gini_at_{k}")
        value = 1.0 if found is None else found
        what = f"the Gini index of what lists of {k} show is {value:.3f}"
        checks.append(_at_most("max_list_gini", value, limit, what, _LISTS))
    if (limit := limits.get("max_list_popularity")) is not None:
        checks.append(_popularity_check(figures.get(f"popularity_ratio_at_{k}"), limit, k))
    return checks


def _popularity_check(ratio: float | None, limit: float, k: int) -> Check:
    guard = "max_list_popularity"
    if ratio is None:
        return not_checked(guard, "no click on a known item to compare the lists' popularity with")
    what = f"lists of {k} show items {ratio:.2f} times as popular as those clicked"
    return _at_most(guard, ratio, limit, what, _LISTS)


def coverage_check(share: float, config: NightlyConfig) -> Check:
    """Check that the new model knows the items of the new window."""
    what = f"{share:.2%} of the newest window's events are on items the model knows"
    advice = "look for sessions of new items that do not train; or lower the setting"
    return _at_least("min_coverage", share, config.min_coverage, what, advice)
