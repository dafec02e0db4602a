"""The sink of MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mlflow import MlflowException, entities

from dayahead.core.redaction import redacted
from dayahead.tracking.model_package import package_model
from dayahead.tracking.outbox import MLFLOW, Entry, Outbox, never_raising, warn_once
from dayahead.tracking.registry import upload_publication
from dayahead.tracking.sinks import Progress, Sink
from dayahead.tracking.store import Store

ID_TAG: Final = "dayahead.id"
STAGE_TAG: Final = "dvc.stage"
FINGERPRINT_TAG: Final = "dayahead.fingerprint"
LINEAGE_TAG: Final = "lineage."
PARENT_TAG: Final = "mlflow.parentRunId"
NAME_TAG: Final = "mlflow.runName"
NOTE_TAG: Final = "mlflow.note.content"
ERROR_TAG: Final = "error"
PER_CALL: Final = 100
"""Maximum number of params and tags that MLflow accepts at once."""
_REJECTED: Final = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS")


class Uploader(Sink):
    """Sends outboxes to one MLflow store.

    Sending is idempotent: runs are found by our own id, metrics carry their time stamp, and an
    artifact replaces its earlier copy.
    """

    kind = MLFLOW

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.name = redacted(self.store.uri)

    def send(self, outbox: Outbox, progress: Progress) -> Iterator[Progress]:
        """Send entry by entry; raises MlflowException if the store fails."""
        for offset, entry in outbox.read(progress.offset):
            if entry["kind"] == "start":
                progress = self._upload_start(entry)
            else:
                with _skip_rejected(f"{outbox.path}: {entry['kind']}"):
                    self._upload_entry(entry, progress, outbox)
            progress = progress._replace(offset=offset)
            yield progress

    def _upload_start(self, entry: Entry) -> Progress:
        """Find or create the run of the pipeline and, nested in it, that of the stage."""
        stage, at = entry["stage"], entry["at"]
        experiment = self.store.experiment_id(entry["experiment"])
        of_parent = {ID_TAG: entry["pipeline_run"], NAME_TAG: entry["name"]}
        of_run = {STAGE_TAG: stage, ID_TAG: entry["id"], NAME_TAG: stage}
        if entry.get("in_pipeline", True):
            of_parent |= {STAGE_TAG: "pipeline", "mlflow.source.name": "dvc.yaml"}
        if entry["fingerprint"]:
            of_run[FINGERPRINT_TAG] = entry["fingerprint"]
        with self.store.lock():
            parent = self._run(experiment, at, entry["tags"] | of_parent)
            run = self._run(experiment, at, entry["tags"] | of_run | {PARENT_TAG: parent})
        for target, params in ((parent, entry["params"]), (run, entry["stage_params"])):
            self._set_tags(target, {f"{LINEAGE_TAG}{stage}": run})
            with _skip_rejected(f"{stage}: params"):
                self._log(target, "params", [entities.Param(*item) for item in params.items()])
            self.store.client.update_run(target, status="RUNNING")
        for name, fingerprint in entry["upstream"].items():
            self._link_upstream(experiment, (parent, run), name, fingerprint)
        return Progress(self.name, run, parent)

    def _run(self, experiment: str, at: int, tags: dict[str, str]) -> str:
        """Find the run with our id or create it; set its tags in either case."""
        found = self._search(experiment, f"tags.`{ID_TAG}` = '{tags[ID_TAG]}'")
        if found is None:
            found = self.store.client.create_run(experiment, start_time=at, tags=tags)
        else:
            self._set_tags(found.info.run_id, tags)
            if ERROR_TAG in found.data.tags:  # the stage failed before and runs again
                self.store.client.delete_tag(found.info.run_id, ERROR_TAG)
        return str(found.info.run_id)

    def _link_upstream(
        self, experiment: str, targets: tuple[str, str], stage: str, fingerprint: str
    ) -> None:
        """Tag pipeline and stage with the newest finished run of a stage before it."""
        parent, _ = targets
        condition = (
            f"tags.`{STAGE_TAG}` = '{stage}' AND tags.`{FINGERPRINT_TAG}` = '{fingerprint}' "
            f"AND attributes.status = 'FINISHED'"
        )
        in_pipeline = f"{condition} AND tags.`{PARENT_TAG}` = '{parent}'"
        found = self._search(experiment, in_pipeline) or self._search(experiment, condition)
        if found is None:
            return
        if found.data.tags.get(PARENT_TAG) != parent:
            # DVC skipped the stage; its metrics let charts compare the pipeline run with others.
            points = [
                entities.Metric(point.key, point.value, point.timestamp, point.step)
                for name in found.data.metrics
                for point in self.store.client.get_metric_history(found.info.run_id, name)
            ]
            self._log(parent, "metrics", points)
        for target in targets:
            self._set_tags(target, {f"{LINEAGE_TAG}{stage}": found.info.run_id})

    def _search(self, experiment: str, condition: str) -> entities.Run | None:
        order = ["attributes.start_time DESC"]
        runs = self.store.client.search_runs([experiment], condition, max_results=1, order_by=order)
        return runs[0] if runs else None

    def _set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        self._log(run, "tags", [entities.RunTag(*item) for item in tags.items()])

    def _log(self, run: str, kind: str, values: Sequence[Any]) -> None:
        for first in range(0, len(values), PER_CALL):
            self.store.client.log_batch(run, **{kind: values[first : first + PER_CALL]})

    def _upload_entry(self, entry: Entry, progress: Progress, outbox: Outbox) -> None:
        client, run, targets = self.store.client, progress.run, (progress.run, progress.parent)
        match entry["kind"]:
            case "metrics" | "window":
                self._upload_metrics(targets, entry)
            case "system":
                self._upload_metrics((run,), entry)
            case "artifact":
                client.log_artifact(run, str(outbox.path.parent / entry["file"]), entry["into"])
            case "model":
                self._upload_model(targets, entry, outbox.path.parent / entry["file"])
            case "registry":
                upload_publication(client, run, entry, outbox.path.parent)
            case "input":
                self._upload_input(targets, entry)
            case "end":
                self._upload_end(targets, entry, outbox.entries("start")[-1])

    def _upload_metrics(self, runs: Sequence[str], entry: Entry) -> None:
        time, step = entry.get("timestamp", entry["at"]), entry["step"]
        metrics = entry["metrics"].items()
        points = [entities.Metric(name, value, time, step) for name, value in metrics]
        for run in runs:
            self._log(run, "metrics", points)

    def _upload_input(self, runs: Sequence[str], entry: Entry) -> None:
        source = json.dumps({"uri": entry["source"]})
        digest = entry["digest"][:36]  # MLflow's limit
        dataset = entities.Dataset(entry["name"], digest, "local", source)
        tag = entities.InputTag("mlflow.data.context", "input")
        for run in runs:
            self.store.client.log_inputs(run, [entities.DatasetInput(dataset, [tag])])

    def _upload_end(self, runs: Sequence[str], entry: Entry, start: Entry) -> None:
        """Set the status; a tag, which can be a column, and the description hold the error."""
        line, note = f"{start['stage']}: {entry.get('error')}", start["tags"].get(NOTE_TAG, "")
        note = f"**{entry['status'].capitalize()}.** {line}\n\n{note}".strip()
        for run in runs:
            if "error" in entry:
                self._set_tags(run, {ERROR_TAG: line, NOTE_TAG: note})
            self.store.client.set_terminated(run, entry["status"], entry["at"])

    def _upload_model(self, runs: Sequence[str], entry: Entry, folder: Path) -> None:
        # Next to the model's files, so that it is removed with them if this process is killed.
        with TemporaryDirectory(dir=folder.parent) as scratch:
            if (package := _packaged(entry, folder, Path(scratch))) is not None:
                self._upload_package(runs, package)

    def _upload_package(self, runs: Sequence[str], folder: Path) -> None:
        client, creator = self.store.client, runs[0]
        experiment = client.get_run(creator).info.experiment_id
        of_run = f"source_run_id = '{creator}' AND name = 'model'"
        if found := client.search_logged_models([experiment], of_run, max_results=1):
            model = found[0]
        else:
            model = client.create_logged_model(experiment, name="model", source_run_id=creator)
        client.log_model_artifacts(model.model_id, str(folder))
        client.finalize_logged_model(model.model_id, "READY")
        for run in runs:
            outputs = client.get_run(run).outputs
            known = {each.model_id for each in outputs.model_outputs} if outputs else set()
            if model.model_id not in known:  # MLflow rejects an output that the run already has
                client.log_outputs(run, [entities.LoggedModelOutput(model.model_id, step=0)])


def _packaged(entry: Entry, folder: Path, scratch: Path) -> Path | None:
    if "code" not in entry:  # recorded by 0.1.0, which packaged models in the stage
        return folder
    code, package = folder.parent / entry["code"], folder.parent / entry["package"]
    with never_raising("the model is not uploaded"):
        return package_model(scratch / "model", folder, code, package)
    return None


@contextmanager
def _skip_rejected(what: str) -> Iterator[None]:
    """Skip entries that the store will never accept or that are damaged: others must not wait."""
    try:
        yield
    except (MlflowException, FileNotFoundError, KeyError, TypeError) as error:
        if isinstance(error, MlflowException) and error.error_code not in _REJECTED:
            raise
        warn_once(f"{what} rejected and skipped: {error}")
