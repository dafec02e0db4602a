"""One night: new data, drift, one window more, guards, publication, succession, page.

Every step can be repeated: a decision is in the history before it is carried out, and the next
call completes what a killed one has left.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dayahead.config.params import Params
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.nightly.admission import Admission, admit
from dayahead.nightly.champion import check_champion, nightly_params, trial_of
from dayahead.nightly.guards import Check
from dayahead.nightly.history import Entry, State, windows_of
from dayahead.nightly.live_log import live_details
from dayahead.nightly.online import online_details
from dayahead.nightly.pipeline import Pipeline, RefusedDataError
from dayahead.nightly.publication import model_name
from dayahead.nightly.reasons import advice_of, passed_of
from dayahead.nightly.refresh import Open, Refresh
from dayahead.nightly.saved_model import SavedModel
from dayahead.nightly.served import Outcome, Served
from dayahead.nightly.succession import Trial, champion_settings
from dayahead.nightly.trials import run_trials
from dayahead.windows.folder import Window, WindowFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Night(Served):
    """The nightly runs of a project."""

    pipeline: Pipeline
    open: Open = SavedModel

    def run(self, *, adopt: bool = False, dry_run: bool = False) -> Outcome:
        """Decide on the newest window, once, and carry it out.

        Args:
            adopt: whether changed settings of params.yaml become the champion's without a trial.
            dry_run: whether to stop before anything is recorded or published.

        Raises:
            RetryLaterError: a source is out of reach, or another run is at work.
            ConfigError: the settings are not the champion's, or do not suit nights.
            StageError: a stage failed.
        """
        with self.alone():
            params = nightly_params(self.root)
            self._trials(params)  # so that wrong challengers are an error before the night
            # First complete what a killed night has left undone.
            earlier = None if dry_run else self._completed(params)
            champion = check_champion(self.history.read(), params, adopt=adopt)
            if champion is not None and not dry_run:
                self.history.append(champion)
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
                outcome = earlier or self._or_won(params, self._nothing_new(folder))
            else:
                outcome = self._carry_out(params, entry, dry_run=dry_run)
            return replace(outcome, open=_open_window(folder, params.dataset))

    def _completed(self, params: Params) -> Outcome | None:
        outcome = self.complete(params, self._run_trials)
        if outcome is not None and outcome.outcome == "published":
            return self._or_won(params, outcome)
        return outcome

    def _decide(self, params: Params, folder: WindowFolder) -> Entry | None:
        """Decide on the newest window; None where that is done, or there are too few windows."""
        fitted_on = folder.statistics.fitted_on
        if len(folder.windows) < 2 or folder.windows[-1].name in fitted_on:  # noqa: PLR2004
            return None
        state, newest = self.history.read(), folder.windows[-1]
        content = sha256_of(folder.path(newest, "train"))
        champion = fingerprint(champion_settings(params))[:8]
        facts: dict[str, Any] = {"window": newest.name, "content": content, "champion": champion}
        key = fingerprint(facts | {"settings": params.nightly.decision_settings})
        earlier = state.decision_on(newest.name)
        if earlier is not None and _stands(earlier, key, content):
            return None
        new = _new_windows(state, folder)
        admission, details = _admit(folder, new, state, params)
        of_log = self.root, folder, newest
        details |= {**live_details(*of_log, state), **online_details(*of_log)}
        details |= {"champion": champion, "content": content}
        checks, common = list(admission.checks), {"window": newest.name, "key": key}
        if any(window.name in admission.refused for window in new):
            return _entry("refused", checks, details=details, **common)
        _log.info("fitting up to %s; its own evaluation is by the model before", newest.name)
        self.pipeline.train()
        _log.info("checking the new model with the guards")
        refused = state.refused_windows - {*admission.readmitted, *details["windows"]}
        limits = params.nightly.slow_limits
        accepted = {guard: state.accepted(guard, limit) for guard, limit in limits.items()}
        refresh = Refresh(self.root, folder, params, refused, accepted, self.open)
        refresh.require_newest()
        details |= {"metric": params.nightly.metric} | refresh.counting
        name = model_name(refresh.models, newest.name)
        checks += refresh.checks(self._older_model(state, folder, champion))
        checks.append(_withdrawn_check(name, state))
        kind = "published" if all(check.passed for check in checks) else "held"
        return _entry(kind, checks, details=details, model=name, metrics=refresh.metrics, **common)

    def _older_model(self, state: State, folder: WindowFolder, champion: str) -> Path | None:
        """Return the published model that the new one is compared with, if there is one.

        There is none where the ranks of the newest window are its own already, or where it was
        fitted on that window, before the data were corrected.
        """
        current, _ = state.published
        published = state.publication(current) if current else None
        if published is None or published.window == folder.windows[-1].name:
            return None
        is_own = (
            published.window == folder.windows[-2].name
            and published.details.get("champion") == champion
        )
        return None if is_own else self.publications.path(current)

    def _carry_out(self, params: Params, entry: Entry, *, dry_run: bool) -> Outcome:
        if dry_run:
            current, _ = self.history.read().published
            why = f"dry run: {entry.why}"
            return Outcome(entry.kind, entry.window, why, current, entry=entry)
        if entry.kind == "published":
            # Before the entry is recorded: whatever the history publishes must exist on the disk.
            self.publications.stage(self.root / "models", entry.model)
        self.history.append(entry)
        outcome = self._completed(params)
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

    def _or_won(self, params: Params, outcome: Outcome) -> Outcome:
        """Return the outcome, or `won` as long as a winning challenger waits for promotion."""
        won = self.history.read().won({trial.id for trial, _ in self._trials(params)})
        if won is None:
            return outcome
        name = won.details["challenger"]
        how = f"`dayahead nightly --promote {name}`"
        why = f"{won.why}. Its settings become the champion's with {how}"
        return replace(outcome, outcome="won", why=why, challenger=name)

    def _run_trials(self, params: Params) -> None:
        run_trials(self.pipeline, self.history, self.root / "results", params, self._trials(params))

    def _trials(self, params: Params) -> list[tuple[Trial, dict[str, Any]]]:
        """Return the challengers' trials with the settings that they change.

        Raises:
            ConfigError: the settings of a challenger are invalid, or equal the champion's.
        """
        path, challengers = self.root / "params.yaml", params.nightly.challengers.items()
        return [(trial_of(params, path, name), changes) for name, changes in challengers]


def _stands(earlier: Entry, key: str, content: str) -> bool:
    """Return whether a decision on the newest window holds for the present data and settings.

    One that published holds until the data change, whatever the settings are; those of older
    histories, which do not have the hash of their data, hold for good.
    """
    if earlier.kind == "published":
        return bool(earlier.details.get("content", content) == content)
    return earlier.key == key


def _entry(kind: Any, checks: list[Check], **more: Any) -> Entry:  # noqa: ANN401
    json = [check.as_json() for check in checks]
    failed = [check for check in json if not check["passed"]]
    reasons = [*(check["why"] for check in failed), *advice_of(failed)]
    if not failed:
        excused = [check.why for check in checks if check.is_excused]
        reasons = [passed_of(json), *excused]
    return Entry(kind=kind, why="; ".join(reasons), checks=json, **more)


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


def _admit(
    folder: WindowFolder, new: list[Window], state: State, params: Params
) -> tuple[Admission, dict[str, Any]]:
    """Check new windows, and refused ones that were corrected since; return details to record."""
    before = state.refused_contents
    refused = [window for window in folder.windows if before.get(window.name)]
    contents = {each.name: sha256_of(folder.path(each, "train")) for each in (*refused, *new)}
    corrected = [each for each in refused if contents[each.name] != before[each.name]]
    windows = sorted({*corrected, *new}, key=lambda window: window.position)
    found = admit(folder, windows, before, params.nightly)
    details: dict[str, Any] = {"windows": [window.name for window in new]}
    if found.refused:
        details["refused_windows"] = list(found.refused)
        details["refused_contents"] = {name: contents[name] for name in found.refused}
    if found.readmitted:
        details["readmitted"] = list(found.readmitted)
    return found, details


def _withdrawn_check(name: str, state: State) -> Check:
    if name in state.withdrawn:
        why = f"{name} was rolled back ({state.withdrawn[name]})"
        advice = "the next window gives another model; `dayahead rollback` takes this one back"
        return Check("withdrawn", False, why, advice)
    return Check("withdrawn", True, "not rolled back before")
