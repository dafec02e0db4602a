"""Compiled loops are reused by the copies that DVC makes of a project."""

import importlib.util
import sys

import pytest

from dayahead.memory import compiled

SOURCE = "def double(number):\n    return 2 * number\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes a copy of the project and compiles its `double`."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "main"))

    def double_of(copy, source=SOURCE):
        package = tmp_path / copy / "src" / "dayahead"
        package.mkdir(parents=True, exist_ok=True)
        (package / "doubles.py").write_text(source)
        monkeypatch.setattr(compiled, "PACKAGE", package)
        spec = importlib.util.spec_from_file_location("doubles", package / "doubles.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "doubles", module)
        spec.loader.exec_module(module)
        return compiled.compiled(module.double)

    return double_of


def cache_of(tmp_path, copy):
    return str(tmp_path / copy / "src" / "dayahead" / "__pycache__")


def test_a_copy_reuses_what_the_project_compiled(project, tmp_path):
    for copy, n_reused in {"main": 0, "first": 1, "second": 1}.items():
        double = project(copy)
        assert double(3) == 6
        assert sum(double.stats.cache_hits.values()) == n_reused
        assert double.stats.cache_path == cache_of(tmp_path, "main")


def test_a_copy_compiles_for_the_project(project):
    project("main")
    assert project("first")(3) == 6
    double = project("main")
    assert double(3) == 6
    assert sum(double.stats.cache_hits.values()) == 1


def test_a_changed_copy_keeps_its_own(project, tmp_path):
    assert project("main")(3) == 6
    changed = project("changed", SOURCE.replace("2", "3"))
    assert changed(3) == 9
    assert changed.stats.cache_path == cache_of(tmp_path, "changed")
    assert project("main")(3) == 6


PAIR = """from typing import NamedTuple
class Pair(NamedTuple):
    a: int
    b: int
"""
ADD = """# @compiled
def double(pair):
    return pair.a + pair.b
"""


def test_a_cache_that_names_a_class_that_is_gone_is_not_read(project, tmp_path):
    """As after an update: the index of the function's cache holds the types of its arguments."""
    first = project("main", PAIR + ADD)
    assert first(sys.modules["doubles"].Pair(1, 2)) == 3
    compiled._digest.cache_clear()
    second = project("main", PAIR.replace("Pair", "Couple") + ADD)
    assert second(sys.modules["doubles"].Couple(1, 2)) == 3


def test_a_copy_that_differs_in_another_compiled_file_has_a_name_of_its_own(project, tmp_path):
    assert project("main")(3) == 6
    beside = tmp_path / "copy/src/dayahead/pairs.py"
    beside.parent.mkdir(parents=True)
    beside.write_text("# @compiled")
    double = project("copy")
    assert double(3) == 6
    assert double.stats.cache_path == cache_of(tmp_path, "main")
    assert sum(double.stats.cache_hits.values()) == 0


def test_functions_of_other_packages_are_left_alone(tmp_path):
    assert compiled.ProjectCache.from_function(str, str(tmp_path / "other.py")) is None
