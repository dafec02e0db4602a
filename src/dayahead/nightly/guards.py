"""Guards: checks of a new window and of a new model, with advice for those that fail."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from dayahead.config.nightly import NightlyConfig
from dayahead.metrics.metrics import mean
from dayahead.nightly.drift import MIN_BEFORE, Drift, Drifts
from dayahead.windows.folder import Window, WindowFolder

_SOURCE = (
    "if the log is wrong (rows missing, items renumbered), replace its file by a corrected one; if "
    "the change is real, raise the setting; then run again"
)


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
    checked: bool = True
    """False where there is nothing to compare with, or no limit: it refuses nothing then."""

    def as_json(self) -> dict[str, Any]:
        """Return the check as the history holds it."""
        fields = asdict(self)
        if self.checked:
            del fields["checked"]
        return {name: value for name, value in fields.items() if value not in (None, "")}


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
        return [not_checked(guard, why) for guard in ("max_session_change", "max_new_items")]
    sessions, items = drift.sessions, drift.new_items
    found = _at_most(
        "max_session_change", sessions.excess, config.max_session_change,
        f"{window}: {sessions.value:.3g} x the sessions expected of it, at most "
        f"{sessions.usual:.3g} x up or down before: {sessions.excess:.3g} x as far as usual",
        _SOURCE,
    )  # fmt: skip
    if items is None:
        why = f"{window}: no two windows before are as far apart"
        return [found, not_checked("max_new_items", why)]
    return [
        found,
        _at_most(
            "max_new_items", items.excess, config.max_new_items,
            f"{window}: {items.value:.1%} of the events are on items that no earlier window has, "
            f"{items.usual:.1%} at most before: {items.excess:.2f} of the way to 1",
            _SOURCE,
        ),
    ]  # fmt: skip


def new_window_checks(
    folder: WindowFolder, windows: Sequence[Window], refused: Collection[str], config: NightlyConfig
) -> tuple[list[Check], list[str]]:
    """Check new windows, in order of time; return the checks, and the windows that they refuse.

    Windows that are refused, now or before (`refused`), are no reference for later ones.
    """
    checks: list[Check] = []
    now_refused: list[str] = []
    before = {*refused} - {window.name for window in windows}
    for window in windows:
        drift = Drifts(folder, {*before, *now_refused}, config.windows).of(window)
        found = data_checks(drift, window.name, config)
        checks += found
        if not all(check.passed for check in found):
            now_refused.append(window.name)
    return checks, now_refused


def metric_checks(
    own: Sequence[float], baselines: Mapping[str, Sequence[float]], config: NightlyConfig
) -> list[Check]:
    """Check the metric in the windows that serve as reference, in order, the newest last."""
    n = config.windows
    newest = {name: values[-n:] for name, values in baselines.items()}
    return [
        fall_check(own[-1], own[-n - 1 : -1], config),
        baseline_check(own[-n:], newest, config),
    ]


def fall_check(value: float, before: Sequence[float], config: NightlyConfig) -> Check:
    """Check that the metric has not fallen too far below its median in the windows before."""
    if len(before) < MIN_BEFORE:
        return not_checked("max_fall", f"fewer than {MIN_BEFORE} windows before", value)
    usual = median(before)
    fall = max(0.0, 1 - value / usual) if usual else 0.0
    return _at_most(
        "max_fall", fall, config.max_fall,
        f"{config.metric} {value:.4f}, {fall:.1%} below its median {usual:.4f}",
        "look at the window in results/report.html; the published model stays, and the next "
        "window decides again",
    )  # fmt: skip


def settings_check(
    own: Mapping[str, float], recorded: Mapping[str, float], config: NightlyConfig
) -> Check:
    """Check that changed settings are not worse than those of the published model.

    Args:
        own: the metric by window, with the present settings.
        recorded: the same with those of the published model, as the history has it.
        config: the limits.
    """
    guard, windows = "max_settings_loss", sorted(own.keys() & recorded.keys())[-config.windows :]
    if not windows:
        return not_checked(guard, "no window has figures of the settings before, on these targets")
    now, before = (mean([values[window] for window in windows]) for values in (own, recorded))
    loss = max(0.0, 1 - now / before) if before else 0.0
    return _at_most(
        guard, loss, config.max_settings_loss,
        f"changed settings: {config.metric} {now:.4f} over {len(windows)} windows, {loss:.1%} "
        f"below the {before:.4f} of those before",
        "restore the settings; or raise the setting",
    )  # fmt: skip


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
        guard, lack, margin, what, "serve the counting baseline, or change the settings"
    )


def coverage_check(share: float, config: NightlyConfig) -> Check:
    """Check that the new model knows the items of the new window."""
    what = f"{share:.2%} of the newest window's events are on items the model knows"
    advice = "look for sessions of new items that do not train; or lower the setting"
    return _at_least("min_coverage", share, config.min_coverage, what, advice)
