"""The sink of Weights & Biases: files of an offline run, which `wandb sync` uploads.

wandb sync .dayahead/wandb/*/offline-run-*
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import wandb

from dayahead.core.errors import TrackingError
from dayahead.core.project import cache_root
from dayahead.tracking.outbox import Entry, Outbox
from dayahead.tracking.sinks import Progress, Sink

SYNC = (sys.executable, "-m", "wandb", "sync")
SYNC_SECONDS = 50
"""Maximum seconds of an upload: less than a finished stage waits for its sinks."""
_SETTINGS = {
    "mode": "offline",
    "console": "off",
    "silent": True,
    "disable_git": True,
    "disable_code": True,
    # System metrics are ours, and no data of the machine are sent.
    "x_disable_stats": True,
    "x_disable_meta": True,
}


class WandbSink(Sink):
    """Writes one offline run per stage, when the stage is over.

    WANDB_MODE=online uploads it too, with W&B's own program and its own credentials.
    """

    kind = "wandb"
    is_live = False

    def __init__(self) -> None:
        self.folder = cache_root() / "wandb"
        self.name = str(self.folder)

    def send(self, outbox: Outbox, progress: Progress) -> Iterator[Progress]:
        """Write the entries after `progress` as one part, renamed into place: idempotent."""
        folder = self.folder / outbox.path.parent.name
        part = folder / f"offline-run-{outbox.path.stem}-{progress.offset}"
        *_, (end, _) = outbox.read()
        if not part.exists():
            _write_part(outbox, progress.offset, folder, part)
        if os.environ.get("WANDB_MODE") == "online":
            _upload(part)
        yield Progress(self.name, run=str(part), offset=end)


def _write_part(outbox: Outbox, first: int, folder: Path, part: Path) -> None:
    scratch = folder / f"{part.name}.tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    hook, environment = sys.excepthook, dict(os.environ)
    os.environ |= {"WANDB_ERROR_REPORTING": "false", "WANDB_MODE": "offline"}
    try:
        _log_part(outbox, first, scratch)
    finally:  # W&B changes the hook and the environment for the whole process
        sys.excepthook = hook
        os.environ.clear()
        os.environ.update(environment)
    (written,) = (scratch / "wandb").glob("offline-run-*")
    written.rename(part)
    shutil.rmtree(scratch)


def _log_part(outbox: Outbox, first: int, scratch: Path) -> None:
    start = outbox.entries("start")[-1]
    run = wandb.init(
        id=start["id"],
        resume="allow",
        project=start["experiment"],
        name=start["name"],
        group=f"{start['name']} {start['pipeline_run'][:6]}",
        job_type=start["stage"],
        notes=start["tags"].get("mlflow.note.content"),
        config=start["params"],
        dir=str(scratch),
        settings=wandb.Settings(**_SETTINGS),
    )
    run.define_metric("*", step_metric="window")
    end: Entry = {}
    # W&B drops steps that do not increase; positions in the outbox increase over all parts.
    for n, (offset, entry) in zip(count(), outbox.read()):
        if offset > first:
            _log_entry(run, n, entry)
            end = entry if entry["kind"] == "end" else end
    run.finish(exit_code=int(end.get("status", "FINISHED") != "FINISHED"))


def _log_entry(run: "wandb.Run", n: int, entry: Entry) -> None:
    match entry["kind"]:
        case "window" | "system":
            run.log(entry["metrics"] | {entry["kind"]: entry["step"]}, step=n)
        case "metrics":
            run.summary.update(entry["metrics"])
        case "end" if "error" in entry:
            run.summary["error"] = entry["error"]


def _upload(part: Path) -> None:
    done = subprocess.run(
        [*SYNC, str(part)], capture_output=True, text=True, timeout=SYNC_SECONDS, check=False
    )
    if done.returncode:
        message = (done.stderr or done.stdout).strip().splitlines()
        raise TrackingError(f"wandb sync: {message[-1] if message else 'failed'}")
