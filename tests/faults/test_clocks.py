"""Clocks that are set: nothing but records and clearing away may go by them."""

import os
import time

import pytest

from faults.outcomes import ends_equal, killed, under_way

pytestmark = pytest.mark.faults
SET_BACK = """
import pathlib, time
real = time.time
def late():
    return real() - 86_400 * pathlib.Path("set-back").exists()
time.time, time.time_ns = late, lambda: int(late() * 1e9)
"""


def test_what_is_kept_seems_to_come_from_tomorrow(project, undisturbed):
    project.forget()
    killed(project)
    tomorrow = time.time() + 86_400
    for path in (project.folder / ".dayahead").rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    ends_equal(project, undisturbed)


def test_a_clock_that_is_set_back_on_the_way(project, undisturbed):
    """By a day, as Python's own code is told it."""
    project.forget()
    (project.folder / "sitecustomize.py").write_text(SET_BACK)
    process = under_way(project, PYTHONPATH="src:.")
    (project.folder / "set-back").touch()
    try:
        assert process.poll() is None
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
        status, said = project.run("dvc repro --force", PYTHONPATH="src:.")
        assert status == 0, said
    finally:
        for name in ("set-back", "sitecustomize.py"):
            (project.folder / name).unlink()
    assert project.left() == undisturbed.left
    ends_equal(project, undisturbed)
