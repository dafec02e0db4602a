"""The record of one stage, as its script sees it."""

import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil

from dayahead.config.params import Params
from dayahead.core.errors import TERMINATED, redacted
from dayahead.core.project import project_root
from dayahead.tracking.background import Shipper
from dayahead.tracking.journal import Journal, WindowLog, harmless, now_ms, numbers, warn_once
from dayahead.tracking.lineage import Pipeline
from dayahead.tracking.packaging import pack_model
from dayahead.tracking.pipeline_run import (
    born_after_boot,
    identity_of,
    journal_for,
    origin_tags,
)
from dayahead.tracking.uploader import FINGERPRINT_TAG

_NOWHERE = Path(os.devnull) / "journal.jsonl"


class StageRun:
    """Takes records of one stage. Every method notes and returns at once; none raises."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.log_window = WindowLog(journal)

    @harmless
    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Note figures, for the stage and for the pipeline."""
        self.journal.append(
            "metrics", step=step, timestamp=now_ms(), metrics=numbers(metrics), window=False
        )

    @harmless
    def log_params(self, params: Mapping[str, Any]) -> None:
        """Note settings of the stage beyond params.yaml."""
        self.journal.append("params", params=_texts(params))

    @harmless
    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file and send it into `folder` of the run's artifacts."""
        self.journal.append("artifact", kept=self.journal.keep(path), folder=folder)

    @harmless
    def log_artifacts(self, path: Path, folder: str | None = None) -> None:
        """Keep the content of a folder and send it into `folder` of the run's artifacts."""
        self.journal.append("artifacts", kept=self.journal.keep(path), folder=folder)

    @harmless
    def log_model(self, folder: Path, code: Path, example: str) -> None:
        """Keep a saved model with the code that serves it; `example` is a session."""
        packed = pack_model(self.journal.new_folder() / "model", folder, code, example)
        self.journal.append("model", kept=str(packed.relative_to(self.journal.path.parent)))

    @harmless
    def log_input(self, name: str, source: str | Path, digest: str) -> None:
        """Note what the stage read; `digest` is a hash of its content."""
        self.journal.append("input", name=name, source=redacted(str(source)), digest=digest)


@contextmanager
def stage_run(stage: str, params: Params) -> Iterator[StageRun]:
    """Record a stage while the block runs; how it ends is noted too."""
    root = project_root()
    run = _opened(root, stage, params)
    shipper = Shipper(root, run.journal.path.parent)
    shipper.start()
    try:
        with _terminable():
            yield run
    except BaseException as error:
        _note_end(run.journal, _status(error))
        raise
    else:
        _note_end(run.journal, "FINISHED")
    finally:
        shipper.close()


def _opened(root: Path, stage: str, params: Params) -> StageRun:
    try:
        pipeline = _pipeline_of(stage)
        fingerprint = pipeline.fingerprint_of(stage) if pipeline else None
        run = StageRun(journal_for(root, stage, fingerprint))
        run.journal.append("start", **_facts(run.journal, stage, params, pipeline))
    except Exception as error:  # noqa: BLE001
        told = f"tracking: no journal in {root}, this stage goes unrecorded: {error!r}"
        warn_once(redacted(told))
        return StageRun(Journal(_NOWHERE))
    return run


def _pipeline_of(stage: str) -> Pipeline | None:
    try:
        pipeline = Pipeline(Path.cwd())
        pipeline.fingerprint_of(stage)
    except Exception as error:  # noqa: BLE001
        warn_once(redacted(f"tracking: the run gets no lineage: {error!r}"))
        return None
    return pipeline


def _facts(
    journal: Journal, stage: str, params: Params, pipeline: Pipeline | None
) -> dict[str, Any]:
    begun = journal.start()
    process = psutil.Process()
    tags = origin_tags(stage)
    settings = _texts(asdict(params))
    facts = {
        "id": begun["id"] if begun else uuid.uuid4().hex,
        "execution": identity_of(journal.path.parent),
        "experiment": params.tracking.experiment,
        "stage": stage,
        "name": tags.get("dvc.exp_name") or time.strftime("repro %Y-%m-%d %H:%M", time.gmtime()),
        "tags": tags,
        "params": settings,
        "stage_params": settings,
        "fingerprint": None,
        "upstream": {},
        "host": socket.gethostname(),
        "pid": process.pid,
        "born": born_after_boot(process),
    }
    if pipeline:
        fingerprint = pipeline.fingerprint_of(stage)
        facts |= {
            "fingerprint": fingerprint,
            "tags": tags | {FINGERPRINT_TAG: fingerprint},
            "upstream": {
                name: pipeline.fingerprint_of(name) for name in pipeline.upstream_of(stage)
            },
            "stage_params": _listed(settings, pipeline.params_of(stage)),
        }
    return facts


def _listed(settings: dict[str, str], listed: list[str]) -> dict[str, str]:
    return {
        key: value
        for key, value in settings.items()
        if any(key == name or key.startswith(f"{name}.") for name in listed)
    }


def _texts(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `section.key: text`, without credentials."""
    texts: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            texts |= _texts(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            texts[f"{prefix}{key}"] = redacted(text)
    return texts


@harmless
def _note_end(journal: Journal, status: str) -> None:
    journal.append("end", status=status)


def _status(error: BaseException) -> str:
    """MLflow's word for how a stage ended that did not reach its end."""
    if isinstance(error, SystemExit) and not error.code:
        return "FINISHED"
    by_exit = isinstance(error, SystemExit) and error.code == TERMINATED
    # torch's launcher turns a signal into an exception that carries it as `sigval`.
    by_signal = isinstance(error, KeyboardInterrupt) or hasattr(error, "sigval")
    return "KILLED" if by_exit or by_signal else "FAILED"


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the end is noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)
