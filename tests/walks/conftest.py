"""The project that walks begin with: three small days, run."""

import shutil
from pathlib import Path

import pytest

from builders.projects import Project, make_project


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A clone after `dvc repro` on three small days, and what that wrote; not to be changed."""
    project = make_project(tmp_path_factory.mktemp("walks") / "project")
    return project, project.run("dvc", "repro")


@pytest.fixture
def project(first_run: tuple[Project, str], tmp_path: Path) -> Project:
    """A copy of that clone, to be changed."""
    shutil.copytree(first_run[0].folder, tmp_path / "project", symlinks=True)
    return Project(tmp_path / "project")
