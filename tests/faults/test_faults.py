"""One fault at a time: the end is the same, or one clear error and the same after a rerun."""

import subprocess
import time

import pytest

from faults.outcomes import ends_equal, refused, under_way

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _fresh(project, undisturbed):
    project.forget()


def wait_for_group(number):
    """Until no process of it is left."""
    while (
        subprocess.run(["pgrep", "--pgroup", str(number)], stdout=-3, check=False).returncode == 0
    ):
        time.sleep(0.5)


def test_dvc_is_killed_and_its_stage_goes_on(project, undisturbed):
    dvc = under_way(project, "dvc repro --force --single-item train")
    dvc.kill()
    dvc.wait()
    dvc.stdout.close()
    second = project.stage("train")
    if second[0] != 0:
        refused(second, "still runs the stage train")
        wait_for_group(dvc.pid)
    ends_equal(project, undisturbed)


def both_said(project, command):
    """Run a command twice at once; exit status and words of each, the better one first."""
    both = [project.start(command) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    return sorted(zip((process.returncode for process in both), said, strict=True))


def test_two_stages_at_once(project, undisturbed):
    first, second = both_said(project, "python stages/train.py")
    assert first[0] == 0, first[1]
    refused(second, "still runs the stage train")
    ends_equal(project, undisturbed)


def test_two_dvc_repro_at_once(project, undisturbed):
    first, second = both_said(project, "dvc repro --force")
    assert first[0] == 0, first[1]
    refused(second, "is busy, it is being blocked by|[Uu]nable to acquire lock")
    assert project.left() == undisturbed.left


def test_the_tracking_server_is_down(project, undisturbed):
    status, said = project.stage("train", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert status == 0, said
    ends_equal(project, undisturbed)


def test_a_loss_that_diverges(project, undisturbed):
    with project.changed("training", learning_rate=1e30, schedule="constant", epochs=3):
        refused(project.stage("train"), r"window 2017-10-02T\d\d, step \d+: .*learning_rate")
    ends_equal(project, undisturbed)
