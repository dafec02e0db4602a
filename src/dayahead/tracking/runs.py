"""Recording of one stage: the interface for its script."""

import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayahead.config.changed_settings import changed_settings
from dayahead.config.params import Params, flat_settings
from dayahead.core.errors import DayaheadError, first_line, signal_of, terminable
from dayahead.core.fingerprints import sha256_of
from dayahead.core.phases import in_phase
from dayahead.core.redaction import redacted
from dayahead.tracking.experiment_view import CHANGED_TAG, changed_text
from dayahead.tracking.lineage import Lineage, lineage_of, origin_tags
from dayahead.tracking.outbox import Outbox, never_raising, outbox_for, outboxes
from dayahead.tracking.run_names import run_name
from dayahead.tracking.sender import background_sender

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class StageRun:
    """Records of one stage; can be pickled. No method raises.

    Each appends to the outbox; `tracking.sync` sends the outbox to the sinks.
    """

    outbox: Outbox

    @never_raising("the record is skipped")
    def log_window(self, record: Mapping[str, Any]) -> None:
        """Record `{"step": position, "timestamp_ms": start, "metrics": {name: value or None}}`."""
        # A resumed stage reports all windows; MLflow would append what it already has.
        known = {entry.get("step") for entry in self.outbox.entries("window")}
        if (step := int(record["step"])) not in known:
            timestamp, metrics = int(record["timestamp_ms"]), _floats(record["metrics"])
            self.outbox.append("window", step=step, timestamp=timestamp, metrics=metrics)

    @never_raising("the record is skipped")
    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Record metrics, for the stage and for the pipeline run."""
        self.outbox.append("metrics", step=0, metrics=_floats(metrics))

    @never_raising("the record is skipped")
    def log_artifact(self, path: Path, into: str | None = None) -> None:
        """Record a file or folder, for the folder `into` of the run's artifacts."""
        self.outbox.append("artifact", file=self.outbox.add_file(path), into=into)

    @in_phase("log model")
    @never_raising("the record is skipped")
    def log_model(self, folder: Path, code: Path) -> None:
        """Record a saved model with a copy of the code that serves it, which may change."""
        file = self.outbox.add_file(folder)
        place = (self.outbox.path.parent / file).parent
        shutil.copy(code, place)
        shutil.copytree(PACKAGE, place / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        self.outbox.append("model", file=file, code=code.name, package=PACKAGE.name)

    @never_raising("the record is skipped")
    def log_registry(self, fields: Mapping[str, object]) -> None:
        """Record which published model is champion (`publication.Publication`)."""
        self.outbox.append("registry", **fields)

    @never_raising("the record is skipped")
    def log_input(self, name: str, source: str | Path, manifest: Path) -> None:
        """Record the data that the stage read; `manifest` is a file that lists its content."""
        at, digest = redacted(str(source)), sha256_of(manifest)
        self.outbox.append("input", name=name, source=at, digest=digest)


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if value is not None}


@contextmanager
def stage_run(
    stage: str, params: Params, outbox: Outbox | None = None, name: str | None = None
) -> Iterator[StageRun]:
    """Record a stage while the block runs, and how it ends.

    Work other than a stage of dvc.yaml has no lineage, but an `outbox` of its own and a `name`.
    """
    lineage = Lineage()
    if outbox is None:
        # An outbox that cannot be written: if no other can be opened, records are dropped.
        outbox = Outbox(Path(os.devnull) / "outbox.jsonl")
        with never_raising("the run gets no lineage"):
            lineage = lineage_of(stage, Path.cwd())
        with never_raising("there is no outbox"):
            outbox = outbox_for(stage, lineage.fingerprint)
    with background_sender(outbox, params.tracking.sinks):
        end = {"status": "FINISHED"}
        with never_raising("the stage is not recorded"):
            start = _start_entry(outbox, stage, params, lineage)
            outbox.append("start", **start | ({"name": name, "in_pipeline": False} if name else {}))
        try:
            with terminable():
                yield StageRun(outbox)
        except BaseException as error:
            end = _end_entry(error)
            raise
        finally:
            with never_raising("the end of the stage is not recorded"):
                outbox.append("end", **end)


def _start_entry(outbox: Outbox, stage: str, params: Params, lineage: Lineage) -> dict[str, Any]:
    siblings = [each.start() for each in outboxes() if each.path.parent == outbox.path.parent]
    pipeline_run = next((start["pipeline_run"] for start in siblings if start), uuid.uuid4().hex)
    tags = origin_tags(stage)
    texts = {name: setting_text(value) for name, value in flat_settings(params).items()}
    changed = [
        (name, texts[name]) for name in changed_settings(flat_settings(params)) if name in texts
    ]
    listed = tuple(texts) if lineage.params is None else lineage.params
    return {
        "pipeline_run": pipeline_run,
        "id": f"{pipeline_run}-{stage}",
        "experiment": params.tracking.experiment,
        "sinks": params.tracking.sinks,
        "stage": stage,
        "name": run_name(params, tags.get("dvc.exp_name")),
        "tags": tags | {CHANGED_TAG: changed_text(changed)},
        "params": texts,
        "stage_params": {
            key: text
            for key, text in texts.items()
            if any(key == name or key.startswith(f"{name}.") for name in listed)
        },
        "fingerprint": lineage.fingerprint,
        "upstream": lineage.upstream,
    }


def setting_text(value: object) -> str:
    """Return the value of a setting as trackers record it: JSON, but text as it is."""
    return redacted(value if isinstance(value, str) else json.dumps(value, default=str))


def _end_entry(error: BaseException) -> dict[str, str]:
    """MLflow's status for a stage that ended with an exception, and the reason."""
    if isinstance(error, SystemExit) and not error.code:
        return {"status": "FINISHED"}
    if (number := signal_of(error)) is not None:
        return {"status": "KILLED", "error": f"stopped by {signal.Signals(number).name}"}
    line = first_line(error)
    is_named = isinstance(error, DayaheadError) or line == type(error).__name__
    return {"status": "FAILED", "error": line if is_named else f"{type(error).__name__}: {line}"}
