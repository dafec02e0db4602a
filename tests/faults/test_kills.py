"""SIGKILL at thirty moments of a run over twelve windows, each drawn by its seed."""

import os
import random
import signal
import time

import pytest

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("seed", range(30))
def test_a_killed_run_ends_as_if_it_had_not_been(project, undisturbed, seed):
    project.forget()
    process = project.start("python stages/train.py")
    time.sleep(random.Random(seed).uniform(0, undisturbed.seconds))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    status, said = project.stage("train")
    assert status == 0, said
    assert project.stage("aggregate")[0] == 0
    assert project.left() == undisturbed.left
