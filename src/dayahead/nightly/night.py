"""One night: new data, guards of the data, one window more, guards of the model, publication.

Every step can be repeated: a decision is in the history before it is carried out, and the next
call completes what a killed one has left.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dayahead.config.model import FITTED
from dayahead.config.params import Params, flat_settings, load_params
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.metrics.metrics import metric_names
from dayahead.nightly.guards import Check, new_window_checks
from dayahead.nightly.history import Entry, State, windows_of
from dayahead.nightly.pipeline import Pipeline, RefusedDataError
from dayahead.nightly.publication import model_name
from dayahead.nightly.refresh import Open, Refresh
from dayahead.nightly.saved_model import SavedModel
from dayahead.nightly.served import Outcome, Served
from dayahead.windows.folder import Window, WindowFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Night(Served):
    """The nightly runs of a project."""

    pipeline: Pipeline
    open: Open = SavedModel

    def run(self, *, dry_run: bool = False) -> Outcome:
        """Decide on the newest window, once, and carry it out.

        Args:
            dry_run: whether to stop before anything is recorded or published.

        Raises:
            RetryLaterError: a source is out of reach, or another run is at work.
            ConfigError: the settings do not suit nights.
            StageError: a stage failed.
        """
        with self.alone():
            params = nightly_params(self.root)
            # First complete what a killed night has left undone.
            earlier = None if dry_run else self.complete(params)
            _log.info("fetching new data, and writing the windows that are complete")
            try:
                self.pipeline.update_data()
            except RefusedDataError as error:
                return self._log_refused(params, str(error), dry_run=dry_run)
            folder = WindowFolder(self.root / "data" / "windows")
            if not dry_run:
                self._skip_dropped(folder)
            entry = self._decide(params, folder)
            if entry is None:
                outcome = earlier or self._nothing_new(folder)
            else:
                outcome = self._carry_out(params, entry, dry_run=dry_run)
            return replace(outcome, open=_open_window(folder, params.dataset))

    def _decide(self, params: Params, folder: WindowFolder) -> Entry | None:
        """Decide on the newest window; None where that is done, or there are too few windows."""
        fitted_on = folder.statistics.fitted_on
        if len(folder.windows) < 2 or folder.windows[-1].name in fitted_on:  # noqa: PLR2004
            return None
        state, newest, config = self.history.read(), folder.windows[-1], params.nightly
        content = sha256_of(folder.path(newest, "train"))
        details: dict[str, Any] = {"content": content, **_settings_and_targets(params)}
        limits = {"limits": params.nightly.decision_settings}
        key = fingerprint({"window": newest.name} | details | limits)
        earlier = state.decision_on(newest.name)
        if earlier is not None and _stands(earlier, key, content):
            return None
        new = _new_windows(state, folder)
        checks, refused = new_window_checks(folder, new, state.refused_windows, config)
        names = details["windows"] = [window.name for window in new]
        common = {"window": newest.name, "key": key, "details": details}
        if refused:
            details["refused_windows"] = refused
            return _entry("refused", checks, **common)
        _log.info("fitting up to %s; its own evaluation is by the model before", newest.name)
        self.pipeline.train()
        _log.info("checking the new model with the guards")
        refresh = Refresh(self.root, folder, params, state.refused_windows - {*names}, self.open)
        refresh.require_newest()
        name = model_name(refresh.models, newest.name)
        checks += refresh.checks(_recorded(state, details))
        checks.append(_withdrawn_check(name, state))
        kind = "published" if all(check.passed for check in checks) else "held"
        return _entry(kind, checks, model=name, metrics=refresh.metrics, **common)

    def _carry_out(self, params: Params, entry: Entry, *, dry_run: bool) -> Outcome:
        if dry_run:
            current, _ = self.history.read().published
            why = f"dry run: {entry.why}"
            return Outcome(entry.kind, entry.window, why, current, entry=entry)
        if entry.kind == "published":
            # Before the entry is recorded: whatever the history publishes must exist on the disk.
            self.publications.stage(self.root / "models", entry.model)
        self.history.append(entry)
        outcome = self.complete(params)
        assert outcome is not None
        return outcome

    def _log_refused(self, params: Params, message: str, *, dry_run: bool) -> Outcome:
        """Record that the data were refused before there was a window, once per reason."""
        state = self.history.read()
        window = state.decisions[-1].window if state.decisions else ""
        key = fingerprint({"window": window, "refused": message})
        entry = Entry(kind="refused", window=window, why=message, key=key)
        last = state.decisions[-1] if state.decisions else None
        if dry_run or (last is not None and last.key == key):
            return Outcome("refused", window, message, state.published[0], entry=entry)
        return self._carry_out(params, entry, dry_run=False)

    def _skip_dropped(self, folder: WindowFolder) -> None:
        """Record new windows that preprocess has dropped."""
        state = self.history.read()
        first = next((windows_of(e)[0] for e in state.decisions if windows_of(e)), None)
        known = {entry.window for entry in state.entries if entry.kind == "skipped"}
        for each in folder.manifest.windows:
            is_new = first is not None and each.window > first and each.window not in known
            if each.state == "dropped" and is_new:
                why = each.why or "dropped"
                self.history.append(Entry(kind="skipped", window=each.window, why=why))

    def _nothing_new(self, folder: WindowFolder) -> Outcome:
        state = self.history.read()
        current, _ = state.published
        last = state.decisions[-1] if state.decisions else None
        if last is None:
            why = f"nothing to evaluate yet: {len(folder.windows)} complete windows"
            return Outcome("nothing new", "", why, current)
        before = "" if last.kind == "published" else f" ({last.kind} then, see the history)"
        if last.model in state.withdrawn:
            before = f" (its model was rolled back: {state.withdrawn[last.model]})"
        return Outcome("nothing new", last.window, f"since {last.window}{before}", current)


def nightly_params(root: Path) -> Params:
    """Read params.yaml, and check that its settings suit nightly runs.

    Raises:
        ConfigError: the settings do not.
    """
    params = load_params(root / "params.yaml")
    metric = params.nightly.metric
    known = metric_names(params.evaluation.cutoffs, params.evaluation.metrics)
    if metric not in known:
        raise ConfigError(
            f"params.yaml: nightly.metric: {metric} is not among the metrics at "
            f"evaluation.cutoffs {list(params.evaluation.cutoffs)}; add its cutoff there, or "
            f"choose one of {', '.join(known)}"
        )
    if params.window.last is not None or not params.training.fit_last:
        raise ConfigError(
            "params.yaml: nights need the newest window: set window.last to null and "
            "training.fit_last to true"
        )
    return params


def _settings_and_targets(params: Params) -> dict[str, str]:
    """Return fingerprints of how models are fitted, and of what they are evaluated on."""
    flat = flat_settings(params)
    fitted = {name: v for name, v in flat.items() if name.partition(".")[0] in {*FITTED, "events"}}
    evaluated = ("evaluation.split", "evaluation.positions", "evaluation.candidates")
    names = ("events.targets", "window.unit", "window.length", "window.overrun", *evaluated)
    targets = {name: flat[name] for name in ("dataset", *names)} | {"metric": params.nightly.metric}
    return {"settings": fingerprint(fitted)[:8], "targets": fingerprint(targets)[:8]}


def _recorded(state: State, details: dict[str, Any]) -> dict[str, float] | None:
    """Return the metric by window with the settings of the published model, if they have changed.

    On other targets than those of the present settings no window has been evaluated.
    """
    published = state.publication(state.published[0])
    if published is None or published.details["settings"] == details["settings"]:
        return None
    return state.figures(published.details["settings"], details["targets"])


def _stands(earlier: Entry, key: str, content: str) -> bool:
    """Return whether a decision on the newest window holds for the present data and settings.

    One that published holds until the data change, whatever the settings are.
    """
    if earlier.kind == "published":
        return bool(earlier.details["content"] == content)
    return earlier.key == key


def _entry(kind: Any, checks: list[Check], **more: Any) -> Entry:  # noqa: ANN401
    failed = [check for check in checks if not check.passed]
    n = sum(check.checked for check in checks)
    why = f"{n} guards passed, {len(checks) - n} not checked"
    if failed:
        why = "; ".join(
            [*(c.why for c in failed), *dict.fromkeys(c.advice for c in failed if c.advice)]
        )
    return Entry(kind=kind, why=why, checks=[check.as_json() for check in checks], **more)


def _open_window(folder: WindowFolder, dataset: str) -> str:
    """Name the first window whose end the log does not reach; empty if it reaches all.

    Later ones may hold clicks too, such as those of a session that goes on for days.
    """
    first = next((each for each in folder.manifest.windows if each.state == "open"), None)
    if first is None:
        return ""
    return (
        f"{first.window} is open: {first.why}; time.complete_until in "
        f"datasets/{dataset}.yaml says up to when the log is complete"
    )


def _new_windows(state: State, folder: WindowFolder) -> list[Window]:
    """Return the windows after the last one decided on before; on the first night, the newest."""
    newest = folder.windows[-1]
    decided = {name for e in state.decisions for name in windows_of(e)} - {newest.name}
    last = max(decided, default="")
    return [w for w in folder.windows if w.name > last] if last else [newest]


def _withdrawn_check(name: str, state: State) -> Check:
    if name in state.withdrawn:
        why = f"{name} was rolled back ({state.withdrawn[name]})"
        advice = (
            "the next window gives another model; `dayahead nightly --rollback` takes this one back"
        )
        return Check("withdrawn", False, why, advice)
    return Check("withdrawn", True, "not rolled back before")
