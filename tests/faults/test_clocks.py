"""Clocks that are wrong: only logs and pruning may depend on them."""

import os
import time

import pytest

from faults.harness import wait

pytestmark = pytest.mark.faults
SET_BACK = """
import pathlib, time
real = time.time
def late():
    return real() - 86_400 * pathlib.Path("set-back").exists()
time.time, time.time_ns = late, lambda: int(late() * 1e9)
"""


def test_cached_work_seems_to_come_from_tomorrow(project, reference):
    project.kill_training()
    tomorrow = time.time() + 86_400
    for path in project.cache.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    project.assert_completes(reference)


def test_the_clock_is_set_back_by_a_day_during_a_run(project, reference):
    """As Python sees it: the system's clock is not touched."""
    (project.folder / "sitecustomize.py").write_text(SET_BACK)
    process = project.start_training(PYTHONPATH="src:.")
    (project.folder / "set-back").touch()
    try:
        assert process.poll() is None
        status, output = wait(process)
        assert status == 0, output
        project.run_successfully("dvc repro --force", PYTHONPATH="src:.")
    finally:
        for name in ("set-back", "sitecustomize.py"):
            (project.folder / name).unlink()
    assert project.outputs() == reference.outputs
    project.assert_completes(reference)
