"""One fault at a time: the end is the same, or one clear error and the same after a rerun."""

import os
import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _fresh(project, undisturbed):
    project.forget()


def ends_equal(project, undisturbed):
    """Run what is left to run, and compare."""
    for stage in ("train", "aggregate"):
        status, said = project.stage(stage)
        assert status == 0, said
    assert project.left() == undisturbed.left


def refused(outcome, pattern):
    """One clear error: a status, a line that says what, and no traceback."""
    status, said = outcome
    assert status != 0
    assert "Traceback" not in said, said
    assert re.search(pattern, said), said


def under_way(project, command="python stages/train.py"):
    """Begin to train, and wait until the first fit is kept."""
    process = project.start(command)
    while process.poll() is None and not list(project.folder.glob(".dayahead/fits/*/fit.json")):
        time.sleep(0.1)
    return process


def killed(project):
    """Train until the first fit is kept, and no further."""
    process = under_way(project)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_an_interrupt(project, undisturbed):
    process = under_way(project)
    process.send_signal(signal.SIGINT)
    process.communicate()
    ends_equal(project, undisturbed)


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
        refused(second, "another process still runs the stage train")
        wait_for_group(dvc.pid)
    ends_equal(project, undisturbed)


def test_two_at_once(project, undisturbed):
    both = [project.start("python stages/train.py") for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    ended = sorted(zip((process.returncode for process in both), said, strict=True))
    assert ended[0][0] == 0, said
    refused(ended[1], "another process still runs the stage train")
    ends_equal(project, undisturbed)


def test_a_disk_that_is_full(project, undisturbed):
    store = project.folder / ".dayahead" / "fits"
    store.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", store], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs rights that we lack")
    try:
        refused(project.stage("train"), r"No space left on device: .*fits")
    finally:
        subprocess.run(["umount", store], check=True)
    ends_equal(project, undisturbed)


def test_the_tracking_server_is_down(project, undisturbed):
    status, said = project.stage("train", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert status == 0, said
    ends_equal(project, undisturbed)


def test_a_loss_that_diverges(project, undisturbed):
    project.set("training", learning_rate=1e30, schedule="constant", epochs=3)
    try:
        refused(project.stage("train"), r"training\.learning_rate")
    finally:
        project.set("training", learning_rate=0.002, schedule="linear", epochs=1)
    ends_equal(project, undisturbed)


def test_too_little_memory(project, undisturbed):
    limited = "prlimit --as=2000000000 python stages/train.py"
    assert project.run(limited)[0] != 0
    ends_equal(project, undisturbed)


def test_half_a_params_yaml(project, undisturbed):
    path = project.folder / "params.yaml"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    try:
        refused(project.stage("train"), r"params\.yaml")
    finally:
        path.write_bytes(whole)
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_window_file_that_is_damaged(project, undisturbed, damage):
    """DVC sees it by its hash; the store gives the windows back."""
    path = next((project.folder / "data" / "windows").glob("*2017-10-02T05-train.parquet"))
    held = bytearray(path.read_bytes())
    path.unlink()
    held[len(held) // 2] ^= 1
    path.write_bytes(held if damage == "flipped" else held[:-100])
    status, said = project.run("dvc repro preprocess")
    assert status == 0, said
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_states_that_are_damaged(project, undisturbed, damage):
    killed(project)
    entries = (project.folder / ".dayahead" / "fits").glob("[!.]*/state.safetensors")
    states = list(entries)
    for path in states:
        held = bytearray(path.read_bytes())
        held[len(held) // 2] ^= 1
        path.write_bytes(held if damage == "flipped" else held[:-100])
    status, said = project.stage("train")
    assert status == 0
    assert said.count(": damaged (") == len(states) > 0
    ends_equal(project, undisturbed)


def test_a_clock_that_was_set_back(project, undisturbed):
    """What is kept seems to come from tomorrow."""
    killed(project)
    tomorrow = time.time() + 86_400
    for path in (project.folder / ".dayahead").rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    ends_equal(project, undisturbed)
