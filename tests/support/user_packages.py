"""Packages of users: the example of docs/own-models.md, and others, installed for a test."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from dayahead.core import plugins

PAGE = Path(__file__).parents[2] / "docs" / "own-models.md"
MODULE = "shop_models"


def example(title):
    """A file of the page by its title."""
    [found] = re.findall(rf'```\w+ title="{title}"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    return found


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of this module and these entry points, by group and name."""

    def installed(source, points):
        site = tmp_path / "site"
        about = site / "shop_models-1.0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-models\nVersion: 1.0\n")
        lines = [
            line
            for group, names in points.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (site / f"{MODULE}.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        plugins.plugins.cache_clear()
        return site / f"{MODULE}.py"

    yield installed
    sys.modules.pop(MODULE, None)
    plugins.plugins.cache_clear()


@pytest.fixture
def project_module(tmp_path, monkeypatch):
    """Write a module of this name and source into the folder of a project, which is the current."""
    names = []

    def written(name, source):
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        names.append(name)
        (folder / f"{name}.py").write_text(source)
        return folder / f"{name}.py"

    monkeypatch.setattr(sys, "path", [*sys.path])
    yield written
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def shop_models(install):
    """The page's package; return its module's file."""
    points = tomllib.loads(example("pyproject.toml"))["project"]["entry-points"]
    return install(example("shop_models.py"), points)
