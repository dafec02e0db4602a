"""Two runs at once, and a stage that survives its DVC."""

import subprocess
import time

import pytest

from faults.harness import BUSY, TRAIN, assert_error, wait

pytestmark = pytest.mark.faults


def wait_for_group(number):
    """Wait until no process of a group is left."""
    pgrep = ["pgrep", "--pgroup", str(number)]
    while subprocess.run(pgrep, stdout=subprocess.DEVNULL, check=False).returncode == 0:
        time.sleep(0.5)


def test_dvc_is_killed_and_its_stage_goes_on(project, reference):
    dvc = project.start_training("dvc repro --force --single-item train")
    dvc.kill()
    dvc.wait()
    dvc.stdout.close()
    second = project.stage("train")
    if second[0] != 0:
        assert_error(second, BUSY)
        wait_for_group(dvc.pid)
    project.assert_completes(reference)


def run_twice(project, command):
    """Outcomes of a command that is run twice at once, the better one first."""
    both = [project.start(command) for _ in range(2)]
    return sorted(wait(process) for process in both)


def test_two_stages_at_once(project, reference):
    first, second = run_twice(project, TRAIN)
    assert first[0] == 0, first[1]
    assert_error(second, BUSY)
    project.assert_completes(reference)


def test_two_dvc_repro_at_once(project, reference):
    first, second = run_twice(project, "dvc repro --force")
    assert first[0] == 0, first[1]
    assert_error(second, "is busy, it is being blocked by|[Uu]nable to acquire lock")
    assert project.outputs() == reference.outputs
