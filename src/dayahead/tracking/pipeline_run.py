"""One pipeline execution: what tells it from others, and the folder that holds its journals."""

import os
import re
import subprocess
import uuid
from collections.abc import Iterable
from getpass import getuser
from itertools import count
from pathlib import Path

import psutil
from filelock import FileLock

from dayahead.core.errors import redacted
from dayahead.core.files import write_text
from dayahead.tracking.journal import Journal

JOURNALS = Path(".dayahead/journal")
EXECUTION = "DAYAHEAD_EXECUTION"
"""Says which execution a stage belongs to that a launcher starts, out of `dvc`'s sight."""


def pipeline_run_key(pid: int | None = None) -> str:
    """A name shared by the stages of one execution, and by no other.

    Args:
        pid: The stage's process; None: this one.
    """
    if key := os.environ.get(EXECUTION):
        return key
    if name := os.environ.get("DVC_EXP_NAME"):
        baseline = os.environ.get("DVC_EXP_BASELINE_REV", "")
        return re.sub(r"[^\w.-]", "_", f"{name}-{baseline[:7]}".rstrip("-"))
    process = psutil.Process(pid)
    dvc = next((parent for parent in process.parents() if _is_dvc(parent)), None)
    kind, process = ("dvc", dvc) if dvc else ("alone", process)
    return f"{kind}-{process.pid}-{born_after_boot(process):.2f}"


def born_after_boot(process: psutil.Process) -> float:
    """Seconds from the machine's start to a process's: setting the clock does not change them."""
    return float(process.create_time() - psutil.boot_time())


def _is_dvc(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()[:3]  # dvc repro; python /bin/dvc repro; python -m dvc repro
    except psutil.Error:
        return False
    return any(Path(word).name == "dvc" for word in words)


def journal_for(root: Path, stage: str, fingerprint: str | None) -> Journal:
    """The journal to go on with, or a new one.

    A stage started again with the same inputs goes on in its journal. With other inputs (an
    experiment's name used a second time) it begins the execution anew, in a folder of its own.
    """
    base = folder = root / JOURNALS / pipeline_run_key()
    for n in count(2):
        following = base.with_name(f"{base.name}-{n}")
        if not following.exists():
            break
        folder = following
    journal = Journal(folder / f"{stage}.jsonl")
    start = journal.start()
    if start is None or start.get("fingerprint") == fingerprint:
        return journal
    return Journal(following / f"{stage}.jsonl")


def identity_of(folder: Path) -> str:
    """The random name of the execution whose journals are in `folder`, drawn by its first stage."""
    path = folder / "execution"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if not path.exists():
            write_text(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8")


def journals_of(folder: Path) -> list[Journal]:
    """The journals of one execution in the order in which its stages first started."""
    return _in_order(folder.glob("*.jsonl"))


def all_journals(root: Path) -> list[Journal]:
    """The journals of every execution, the oldest first."""
    return _in_order((root / JOURNALS).glob("*/*.jsonl"))


def _in_order(paths: Iterable[Path]) -> list[Journal]:
    started = [(start["at"], path) for path in paths if (start := Journal(path).start())]
    return [Journal(path) for _, path in sorted(started)]


def origin_tags(stage: str) -> dict[str, str]:
    """Tags that lead from a run back to its DVC experiment and Git commit."""
    commit = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    name = os.environ.get("DVC_EXP_NAME", "")
    tags = {
        "dvc.exp_name": name,
        "dvc.exp_baseline_rev": os.environ.get("DVC_EXP_BASELINE_REV", ""),
        "git.commit": commit,
        "git.dirty": str(dirty).lower() if commit else "",
        "mlflow.source.git.commit": commit,
        "mlflow.source.name": f"stages/{stage}.py",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": _user(),
        "mlflow.note.content": _way_back(name, commit, dirty),
    }
    return {key: redacted(value) for key, value in tags.items() if value}


def _way_back(name: str, commit: str, dirty: bool) -> str:
    if name:
        return f"Restore with `dvc exp apply {name}`."
    if not commit:
        return ""
    note = f"Restore with `git checkout {commit} && dvc repro`."
    return note + " The working tree had changes that are in no commit." * dirty


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user without a name
