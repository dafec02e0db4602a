"""A copy of the project with other settings, whose stages run as a user's do."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COPIED = ("src", "stages", "datasets", "dvc.yaml", "params.yaml", "requirements.txt", ".gitignore")
STAMPS = (".uv-ready", ".ready", ".dev-ready")
"""Stamp files of the Makefile, in its order: touched, make leaves this environment as it is."""


def clone_project(folder: Path) -> None:
    """Clone the last commit, ready to run: its environment is the one that runs this."""
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name not in STAMPS:
            (folder / ".venv" / path.name).symlink_to(path)
    for name in STAMPS:
        (folder / ".venv" / name).touch()


def copy_project(folder: Path, settings: Mapping[str, Any]) -> None:
    """Copy source, stages and settings into `folder`, which is a DVC project then."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    change_params(folder, settings)


def shrink_log(folder: Path, n_days: int, sessions_per_day: int) -> None:
    """Let the data set `synthetic` have fewer days and sessions."""
    path = folder / "datasets" / "synthetic.yaml"
    text = path.read_text()
    for old, new in {"days: 15": n_days, "_per_day: 4000": sessions_per_day}.items():
        assert old in text
        text = text.replace(old, f"{old.partition(' ')[0]} {new}")
    path.write_text(text)


def change_params(folder: Path, settings: Mapping[str, Any]) -> None:
    """Change params.yaml: {"dataset": "g1", "model": {"n_layer": 1}}."""
    yaml = YAML()
    params = yaml.load(folder / "params.yaml")
    for name, value in settings.items():
        if isinstance(value, Mapping):
            params[name].update(value)
        else:
            params[name] = value
    yaml.dump(params, folder / "params.yaml")
