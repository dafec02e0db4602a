"""A project of its own, run once undisturbed: what every disturbed run has to come to."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from support.window_folders import bytes_in

ROOT = Path(__file__).parents[2]
COPIED = ("src", "stages", "datasets", "dvc.yaml", "params.yaml", "requirements.txt", ".gitignore")
DAYS = ("2017-10-01", "2017-10-02")
SETTINGS = {
    "dataset": "g1",
    "window": {"unit": "hour", "first": "2017-10-02T00", "last": "2017-10-02T11"},
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2, "dropout": 0.1},
    "training": {"epochs": 1, "batch_size": 256, "precision": "float32"},
    "evaluation": {"split": "all"},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
"""Twelve hours of G1, and a model that is fitted on them in half a minute."""


@dataclass(frozen=True)
class Project:
    """A folder in which the stages run as a user's would."""

    folder: Path
    environment: dict[str, str]

    def start(self, command: str, **more: str) -> subprocess.Popen[str]:
        """Begin a command in a process group of its own."""
        return subprocess.Popen(
            command.split(),
            cwd=self.folder,
            env=self.environment | more,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str, **more: str) -> tuple[int, str]:
        """Run a command to its end; its exit status and what it said."""
        process = self.start(command, **more)
        said, _ = process.communicate(timeout=1200)
        return process.returncode, said

    def stage(self, name: str, **more: str) -> tuple[int, str]:
        """Run one stage without DVC."""
        return self.run(f"python stages/{name}.py", **more)

    def forget(self) -> None:
        """Take away what training left, in the store too."""
        for name in ("results", "models", ".dayahead/fits", ".dayahead/measures"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def set(self, section: str, **values: object) -> None:
        """Change params.yaml."""
        yaml = YAML()
        path = self.folder / "params.yaml"
        params = yaml.load(path)
        params[section].update(values)
        yaml.dump(params, path)

    @contextmanager
    def changed(self, section: str, **values: object) -> Iterator[None]:
        """Have params.yaml changed for the length of a block."""
        path = self.folder / "params.yaml"
        before = path.read_bytes()
        self.set(section, **values)
        try:
            yield
        finally:
            path.write_bytes(before)

    def left(self) -> dict[str, bytes]:
        """All that counts of a finished run: averages, windows, ranks and the model."""
        results = bytes_in(self.folder / "results")
        kept = {name: held for name, held in results.items() if _is_equal(name)}
        return kept | bytes_in(self.folder / "models")


def _is_equal(name: str) -> bool:
    return name in ("aod.json", "windows.csv") or name.startswith("ranks/")


@pytest.fixture(scope="session")
def project(tmp_path_factory, real_data) -> Project:
    """A project with its windows, nothing trained."""
    folder = tmp_path_factory.mktemp("faults")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    clicks = folder / "clicks" / "g1-news"
    clicks.mkdir(parents=True)
    for day in DAYS:
        name = f"clicks-{day}.csv.gz"
        (clicks / name).symlink_to(real_data / "g1-news" / name)
    yaml = YAML()
    params = yaml.load(folder / "params.yaml")
    for section, values in SETTINGS.items():
        if isinstance(values, dict):
            params[section].update(values)
        else:
            params[section] = values
    yaml.dump(params, folder / "params.yaml")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": "src",
        "DAYAHEAD_DATA": str(folder / "clicks"),
        "DVC_SITE_CACHE_DIR": str(folder / ".dvc" / "site"),
        "OMP_NUM_THREADS": "1",
    }
    made = Project(folder, environment)
    for command in ("init -q", "add .", "-c user.name=n -c user.email=n commit -qm all"):
        assert made.run(f"git {command}")[0] == 0
    status, said = made.run("dvc repro preprocess")
    assert status == 0, said
    return made


@dataclass(frozen=True)
class Undisturbed:
    """What the run comes to if nothing happens, and how long it takes."""

    left: dict[str, bytes]
    seconds: float


def _run_whole(project: Project) -> Undisturbed:
    project.forget()
    start = time.perf_counter()
    status, said = project.stage("train")
    seconds = time.perf_counter() - start
    assert status == 0, said
    assert project.stage("aggregate")[0] == 0
    return Undisturbed(project.left(), seconds)


@pytest.fixture(scope="session")
def undisturbed(project) -> Undisturbed:
    """The reference."""
    return _run_whole(project)


@pytest.fixture(scope="session")
def _undisturbed_pair(project) -> Undisturbed:
    with project.changed("compute", processes=2):
        return _run_whole(project)


@pytest.fixture
def undisturbed_pair(project, _undisturbed_pair) -> Iterator[Undisturbed]:
    """The reference of two processes, whose dropout is their own; the test runs with two, too."""
    with project.changed("compute", processes=2):
        project.forget()
        yield _undisturbed_pair


@pytest.fixture(scope="session")
def _undisturbed_sharing(project) -> Undisturbed:
    with project.changed("compute", processes=2, shard_items=True):
        return _run_whole(project)


@pytest.fixture
def undisturbed_sharing(project, _undisturbed_sharing) -> Iterator[Undisturbed]:
    """The reference of two processes that share the items out, as they do in the test."""
    with project.changed("compute", processes=2, shard_items=True):
        project.forget()
        yield _undisturbed_sharing
