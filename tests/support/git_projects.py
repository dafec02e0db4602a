"""Projects in Git, and commands that run in them as from a user's shell."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from support.commands import PROGRAMS
from support.project_copy import copy_project, shrink_log

PLACE = {
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "machine": {"workers": 1},
    "tracking": {"experiment": "tiny"},
}


def git(folder: Path, *arguments: str) -> str:
    """Run Git, which succeeds; return its output."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def commit_all(folder: Path) -> None:
    """Make a folder a repository with one commit."""
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "me")
    git(folder, "config", "user.email", "me@here")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")


def make_project(
    folder: Path, settings: Mapping[str, Any], n_days: int, files: Mapping[str, str]
) -> Path:
    """Commit a project of short days, in whose folder nothing has run, and files of its own."""
    folder.mkdir()
    copy_project(folder, PLACE | {"window": {"min_sessions": 1}, **settings})
    shrink_log(folder, n_days, 200)
    (folder / ".dvc" / ".gitignore").write_text("/cache\n/tmp\n/config.local\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    commit_all(folder)
    return folder


def start_dayahead(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command; its output goes to output.txt and errors.txt beside the project."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    environment = kept | {
        "PATH": PROGRAMS,
        "PYTHONPATH": f"{folder / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        "DVC_SITE_CACHE_DIR": f"{folder}-site",
        "MLFLOW_TRACKING_URI": "",
    }
    command = [sys.executable, "-m", "dayahead", *arguments]
    paths = [folder.parent / name for name in ("output.txt", "errors.txt")]
    with paths[0].open("w") as output, paths[1].open("w") as errors:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=errors)


def written(folder: Path) -> tuple[str, str]:
    """Output and errors of the last command that was started."""
    output, errors = ((folder.parent / f"{name}.txt").read_text() for name in ("output", "errors"))
    return output, errors


def working_below(folder: Path) -> list[int]:
    """Processes that work in a clone of the project."""
    found = psutil.process_iter(["cwd"])
    below = str(folder / ".dayahead")
    return [each.pid for each in found if str(each.info["cwd"]).startswith(below)]
