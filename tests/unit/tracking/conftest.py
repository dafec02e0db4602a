"""A small project with three stages and its tracking store."""

import os
import shutil
from pathlib import Path

import pytest

from dayahead.config.params import Params, load_params
from dayahead.tracking import runs
from dayahead.tracking.outbox import warn_once
from dayahead.tracking.store import Store
from support.tracked_stages import DVC_YAML, sending_thread

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _warnings_given_again() -> None:
    warn_once.cache_clear()


@pytest.fixture(scope="session")
def shipped_params() -> Params:
    return load_params(REPOSITORY / "params.yaml")


@pytest.fixture
def cold_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose store nobody has opened yet; the tests run inside."""
    for name in [*os.environ]:
        if name.startswith(("DVC_", "MLFLOW_TRACKING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    (tmp_path / ".dvc").mkdir()
    shutil.copy(REPOSITORY / "params.yaml", tmp_path)
    for path, text in {
        "dvc.yaml": DVC_YAML,
        "sources/synthetic.csv": "a,b\n",
        "code/model.py": "x = 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_EXP_NAME", "lofty-sail")
    monkeypatch.setattr(runs, "background_sender", sending_thread)
    return tmp_path


@pytest.fixture
def project(cold_project: Path, empty_database: Path) -> Path:
    shutil.copy(empty_database, cold_project)
    return cold_project


@pytest.fixture
def store(project: Path) -> Store:
    return Store(project)


@pytest.fixture
def params(cold_project: Path, shipped_params: Params) -> Params:
    return shipped_params
