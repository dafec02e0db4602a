"""A small copy of this project in a temporary folder, for a tutorial to work in."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

PROJECT = Path(__file__).parents[2]
COMPILED = "src/dayahead/memory/__pycache__"
SMALL: dict[str, dict[str, Any]] = {
    "datasets/synthetic.yaml": {
        "source.synthetic.days": 8,
        "source.synthetic.sessions_per_day": 500,
        "source.synthetic.n_items": 500,
    },
    "params.yaml": {
        "training.epochs": 1,
        "memory.first_epochs": 2,
        "memory.epochs": 1,
        "tracking.log_model": False,
    },
}
"""Less data and training than the project has, by file and key."""

_scratch = tempfile.TemporaryDirectory(prefix="dayahead-tutorial-", ignore_cleanup_errors=True)
"""Deleted when the notebook's kernel ends."""


def copy_project() -> Path:
    """Copy the last commit of the project and work in the copy from now on.

    Commands that the notebook starts run the copy's code and store their results in the copy.
    """
    folder = Path(_scratch.name) / "dayahead"
    silent = ("--quiet", "--config", "advice.detachedHead=false")
    subprocess.run(["git", "clone", *silent, PROJECT, folder], check=True)
    if (PROJECT / COMPILED).is_dir():  # else the first run compiles for ten seconds
        shutil.copytree(PROJECT / COMPILED, folder / COMPILED, dirs_exist_ok=True)
    os.chdir(folder)
    # The last one names the notebook's way to draw, which a stage need not have.
    for name in ("DAYAHEAD_ROOT", "DVC_ROOT", "MLFLOW_TRACKING_URI", "MPLBACKEND"):
        os.environ.pop(name, None)
    os.environ |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{folder / 'src'}",
        "DVC_SITE_CACHE_DIR": f"{_scratch.name}/dvc",
        "SHELLOPTS": "errexit",  # a command that fails ends its cell
    }
    write_small_settings()
    _commit()
    return folder


def write_small_settings() -> None:
    """Write SMALL into the files of the working folder."""
    yaml = YAML()
    yaml.preserve_quotes = True
    for name, settings in SMALL.items():
        content = yaml.load(Path(name))
        for key, value in settings.items():
            *sections, last = key.split(".")
            section = content
            for part in sections:
                section = section[part]
            if last not in section:
                raise KeyError(f"{name}: expected {key}")
            section[last] = value
        yaml.dump(content, Path(name))


def _commit() -> None:
    for words in (
        ("config", "user.name", "Tutorial"),
        ("config", "user.email", "tutorial@localhost"),
        ("commit", "--quiet", "--all", "--message", "Less data, less training"),
    ):
        subprocess.run(["git", *words], check=True)
