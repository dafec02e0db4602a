"""Full and read-only disks, too little memory, and a loss that diverges."""

import resource
import subprocess
from contextlib import contextmanager

import psutil
import pytest

from faults.harness import OUT_OF_MEMORY, RESTARTED, TRAIN, assert_error, wait, workers_of

pytestmark = pytest.mark.faults


@contextmanager
def mounted(folder, options):
    """Mount a small disk at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False)
    if done.returncode != 0:
        pytest.skip("no right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(("name", "size"), [(".dayahead/fits", "300k"), ("results", "24k")])
def test_the_disk_is_full(project, reference, name, size):
    folder = project.folder / name
    with mounted(folder, f"size={size}"):
        assert_error(project.stage("train"), rf"No space left on device: .*{folder.name}.*kept")
    project.assert_completes(reference)


@pytest.mark.parametrize("name", [".dayahead/fits", "results", "models"])
def test_a_folder_is_read_only(project, reference, name):
    folder = project.folder / name
    with mounted(folder, "ro"):
        assert_error(
            project.stage("train"), rf"Read-only file system: .*{folder.name}.*permissions"
        )
    project.assert_completes(reference)


@pytest.mark.parametrize("n_bytes", [0, 100, 10_000, 300_000])
def test_files_may_not_grow(project, reference, n_bytes):
    """Of the lock, the results, and the states of the windows."""
    outcome = project.run(f"prlimit --fsize={n_bytes} {TRAIN}")
    assert_error(outcome, r"error: .*File too large: '\S+'; allow larger files \(ulimit -f\)")
    project.assert_completes(reference)


@pytest.mark.parametrize("n_bytes", [100_000_000, 1_000_000_000, 2_000_000_000])
def test_too_little_memory_to_start(project, reference, n_bytes):
    assert_error(project.run(f"prlimit --as={n_bytes} {TRAIN}"), OUT_OF_MEMORY)
    project.assert_completes(reference)


def limit_memory(process):
    """Allow a process no more memory than it has."""
    size = process.memory_info().vms
    resource.prlimit(process.pid, resource.RLIMIT_AS, (size, size))


def test_memory_runs_out(project, reference):
    process = project.start_training()
    limit_memory(psutil.Process(process.pid))
    assert_error(wait(process), OUT_OF_MEMORY)
    project.assert_completes(reference)


@pytest.mark.parametrize("rank", [0, 1])
def test_memory_of_one_of_two_processes_runs_out_once(project, reference_of_two, rank):
    process = project.start_training()
    limit_memory(workers_of(process)[rank])
    status, output = wait(process)
    assert status == 0, output
    assert RESTARTED in output
    project.assert_completes(reference_of_two)


def test_memory_of_one_of_two_processes_runs_out_and_none_may_restart(project, reference_of_two):
    with project.changed("machine", max_restarts=0):
        process = project.start_training()
        limit_memory(workers_of(process)[1])
        assert_error(wait(process), OUT_OF_MEMORY)
    project.assert_completes(reference_of_two)


def test_the_loss_diverges(project, reference):
    with project.changed("training", learning_rate=1e6, schedule="constant", epochs=3):
        assert_error(project.stage("train"), r"window 2017-10-02T\d\d, step \d+: .*learning_rate")
    project.assert_completes(reference)
