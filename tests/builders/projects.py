"""A committed project of a small generated log, and commands in it as from a user's shell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COPIED = ("src", "stages", "datasets", "dvc.yaml", "params.yaml", "requirements.txt", ".gitignore")
TINY = {
    "window": {"min_sessions": 1},
    "model": {"architecture": "transitions", "remind": "score", "d_model": 16, "n_layer": 1},
    "training": {"epochs": 1},
    "memory": {"epochs": 1, "first_epochs": 1},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "machine": {"workers": 1},
}


class Project:
    """A project on a machine of its own, as far as caches go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "DAYAHEAD_"))}
        self.environment = kept | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "src"),
            "DVC_SITE_CACHE_DIR": f"{folder}-site",
            "GIT_CONFIG_PARAMETERS": "'user.name=me' 'user.email=me@here'",
            "MLFLOW_TRACKING_URI": "",
        }

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in the project; its output is one stream."""
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *command: str) -> str:
        """Run a command that succeeds; return its output."""
        process = self.start(*command)
        output, _ = process.communicate()
        assert process.returncode == 0, f"{command}: {output}"
        return output

    def dayahead(self, *arguments: str) -> str:
        """Run a verb that succeeds; return its output."""
        return self.run(sys.executable, "-m", "dayahead", *arguments)

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change params.yaml: {"dataset": "g1", "model": {"n_layer": 1}}."""
        yaml, path = YAML(), self.folder / "params.yaml"
        params = yaml.load(path)
        for name, value in settings.items():
            if isinstance(value, Mapping):
                params[name].update(value)
            else:
                params[name] = value
        yaml.dump(params, path)

    def set_log(self, n_days: int, sessions_per_day: int) -> None:
        """Let the generated log have this many days and sessions a day."""
        yaml, path = YAML(), self.folder / "datasets" / "synthetic.yaml"
        dataset = yaml.load(path)
        sizes = {"days": n_days, "sessions_per_day": sessions_per_day, "n_items": 200}
        dataset["source"]["synthetic"].update(sizes)
        yaml.dump(dataset, path)


def make_project(folder: Path, n_days: int = 3, sessions_per_day: int = 60) -> Project:
    """Commit a project of tiny settings and short days, in which nothing has run."""
    folder.mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copyfile(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    (folder / ".dvc" / ".gitignore").write_text("/cache\n/tmp\n/config.local\n")
    project = Project(folder)
    project.change(TINY)
    project.set_log(n_days, sessions_per_day)
    for command in ("git init -q", "git add --all", "git commit -qm first"):
        project.run(*command.split())
    return project
