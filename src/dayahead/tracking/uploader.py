"""Sends journals to MLflow: live and replayed entries take this one way.

To send an entry twice is to send it once: runs are looked up by an id drawn beforehand, a metric
carries its own time stamp, and an artifact replaces itself. So a sender may die anywhere.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from filelock import FileLock
from mlflow import MlflowException
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelOutput,
    Metric,
    Param,
    Run,
    RunTag,
)

from dayahead.core.errors import redacted
from dayahead.core.files import read_json, write_json
from dayahead.tracking.journal import Entry, Journal, warn_once
from dayahead.tracking.store import Store

ID_TAG: Final = "dayahead.id"
STAGE_TAG: Final = "dvc.stage"
FINGERPRINT_TAG: Final = "dayahead.fingerprint"
LINEAGE_TAG: Final = "lineage."
PARENT_TAG: Final = "mlflow.parentRunId"
AS_PARENT: Final = {STAGE_TAG: "pipeline", "mlflow.source.name": "dvc.yaml"}
MODEL_NAME: Final = "model"
BATCH: Final = 500
DIGEST_LENGTH: Final = 36
_REFUSALS: Final = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS")


@dataclass(frozen=True)
class Progress:
    """How much of a journal a store has, kept beside the journal."""

    store: str = ""
    experiment: str = ""
    run: str = ""
    parent: str = ""
    offset: int = 0

    @staticmethod
    def path(journal: Journal) -> Path:
        """The file beside the journal."""
        return journal.path.with_suffix(".sent.json")

    @classmethod
    def of(cls, journal: Journal) -> "Progress":
        """Read what is known; of a damaged note nothing is, and all is sent again."""
        try:
            return cls(**read_json(cls.path(journal)))
        except (OSError, ValueError, TypeError):
            return cls()


@contextmanager
def _refusals_told(what: str) -> Iterator[None]:
    """Go on over what the store will never take: it must not hold up what comes behind it."""
    try:
        yield
    except (MlflowException, FileNotFoundError, KeyError, TypeError) as error:
        if isinstance(error, MlflowException) and error.error_code not in _REFUSALS:
            raise
        warn_once(f"tracking: {what} refused and left out: {redacted(str(error))}")


class Sender:
    """Brings journals into one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = redacted(store.uri)
        self._senders = {
            "params": self._params,
            "metrics": self._metrics,
            "artifact": self._artifact,
            "artifacts": self._artifacts,
            "model": self._model,
            "input": self._input,
            "end": self._end,
        }

    def send(self, journal: Journal) -> int:
        """Send what the store lacks and return the number of entries.

        Raises:
            MlflowException: the store fails; what was sent is remembered.
            filelock.Timeout: another process is sending this journal.
        """
        n_sent = 0
        with FileLock(journal.path.with_suffix(".sending"), timeout=0):
            progress = Progress.of(journal)
            if progress.offset and progress.store != self.name:
                return 0  # begun in another store, where it belongs whole
            for offset, entry in journal.read(progress.offset):
                progress = replace(self._applied(entry, progress, journal), offset=offset)
                write_json(Progress.path(journal), asdict(progress))
                if kept := entry.get("kept"):
                    shutil.rmtree((journal.path.parent / kept).parent, ignore_errors=True)
                n_sent += 1
        return n_sent

    def _applied(self, entry: Entry, progress: Progress, journal: Journal) -> Progress:
        if entry["kind"] == "start":
            return self._start(entry)
        with _refusals_told(f"{journal.path}: {entry['kind']}"):
            self._senders[entry["kind"]](entry, progress, journal.path.parent)
        return progress

    def _start(self, entry: Entry) -> Progress:
        experiment = self.store.experiment_id(entry["experiment"])
        stage = entry["stage"]
        with self.store.lock():
            parent = self._run(entry["execution"], entry["name"], entry, AS_PARENT)
            run = self._run(entry["id"], stage, entry, {STAGE_TAG: stage, PARENT_TAG: parent})
        progress = Progress(self.name, experiment, run, parent)
        for target, params in ((parent, entry["params"]), (run, entry["stage_params"])):
            self._set_tags(target, {f"{LINEAGE_TAG}{stage}": run})
            with _refusals_told(f"{stage}: params"):
                self._log_params(target, params)
            self.store.client.update_run(target, status="RUNNING")
        self._link(entry["upstream"], progress)
        return progress

    def _run(self, own_id: str, name: str, entry: Entry, tags: Mapping[str, str]) -> str:
        """Find the run with our id or create it; entry's tags, then `tags`, are set either way."""
        experiment = self.store.experiment_id(entry["experiment"])
        tags = {**entry["tags"], **tags}
        if found := self._search(experiment, f"tags.`{ID_TAG}` = '{own_id}'"):
            self._set_tags(found.info.run_id, tags)
            return str(found.info.run_id)
        created = self.store.client.create_run(
            experiment, start_time=entry["at"], run_name=name, tags={ID_TAG: own_id, **tags}
        )
        return str(created.info.run_id)

    def _search(self, experiment: str, condition: str) -> Run | None:
        order = ["attributes.start_time DESC"]
        runs = self.store.client.search_runs([experiment], condition, max_results=1, order_by=order)
        return runs[0] if runs else None

    def _link(self, upstream: Mapping[str, str], progress: Progress) -> None:
        """Tag both runs with the newest finished run of each stage before this one."""
        for stage, fingerprint in upstream.items():
            condition = (
                f"tags.`{STAGE_TAG}` = '{stage}' AND tags.`{FINGERPRINT_TAG}` = '{fingerprint}' "
                f"AND attributes.status = 'FINISHED'"
            )
            here = f"{condition} AND tags.`{PARENT_TAG}` = '{progress.parent}'"
            found = self._search(progress.experiment, here)
            if found is None and (found := self._search(progress.experiment, condition)):
                self._copy_metrics(found, progress.parent)
            if found:
                for target in (progress.run, progress.parent):
                    self._set_tags(target, {f"{LINEAGE_TAG}{stage}": found.info.run_id})

    def _copy_metrics(self, source: Run, target: str) -> None:
        """Give a parent the curves of a stage that DVC skipped, so that parents overlay."""
        client = self.store.client
        history = [
            Metric(point.key, point.value, point.timestamp, point.step)
            for name in source.data.metrics
            for point in client.get_metric_history(source.info.run_id, name)
        ]
        for first in range(0, len(history), BATCH):
            client.log_batch(target, metrics=history[first : first + BATCH])

    def _set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        self.store.client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

    def _log_params(self, run: str, params: Mapping[str, str]) -> None:
        pairs = [Param(key, value) for key, value in params.items()]
        for first in range(0, len(pairs), 100):
            self.store.client.log_batch(run, params=pairs[first : first + 100])

    def _params(self, entry: Entry, progress: Progress, _folder: Path) -> None:
        self._log_params(progress.run, entry["params"])

    def _metrics(self, entry: Entry, progress: Progress, _folder: Path) -> None:
        points = [
            Metric(name, value, entry["timestamp"], entry["step"])
            for name, value in entry["metrics"].items()
        ]
        for target in (progress.run, progress.parent):
            self.store.client.log_batch(target, metrics=points)

    def _artifact(self, entry: Entry, progress: Progress, folder: Path) -> None:
        self.store.client.log_artifact(progress.run, str(folder / entry["kept"]), entry["folder"])

    def _artifacts(self, entry: Entry, progress: Progress, folder: Path) -> None:
        self.store.client.log_artifacts(progress.run, str(folder / entry["kept"]), entry["folder"])

    def _model(self, entry: Entry, progress: Progress, folder: Path) -> None:
        client = self.store.client
        of_this_run = f"source_run_id = '{progress.run}' AND name = '{MODEL_NAME}'"
        found = client.search_logged_models([progress.experiment], of_this_run, max_results=1)
        model = (
            found[0]
            if found
            else client.create_logged_model(
                progress.experiment, name=MODEL_NAME, source_run_id=progress.run
            )
        )
        client.log_model_artifacts(model.model_id, str(folder / entry["kept"]))
        client.finalize_logged_model(model.model_id, "READY")
        client.log_outputs(progress.run, [LoggedModelOutput(model.model_id, step=0)])

    def _input(self, entry: Entry, progress: Progress, _folder: Path) -> None:
        dataset = Dataset(
            name=entry["name"],
            digest=entry["digest"][:DIGEST_LENGTH],
            source_type="local",
            source=json.dumps({"uri": entry["source"]}),
        )
        self.store.client.log_inputs(
            progress.run, [DatasetInput(dataset, [InputTag("mlflow.data.context", "input")])]
        )

    def _end(self, entry: Entry, progress: Progress, _folder: Path) -> None:
        for target in (progress.run, progress.parent):
            self.store.client.set_terminated(target, entry["status"], entry["at"])
