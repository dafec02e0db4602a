"""Disks that are full or may not be written to, and memory that runs out."""

import resource
import subprocess
from contextlib import contextmanager

import psutil
import pytest

from faults.outcomes import ends_equal, refused, under_way, workers_of

pytestmark = pytest.mark.faults
OUT_OF_MEMORY = r"error: .*memory ran out.*lower training\.batch_size.*what is finished is kept"


@contextmanager
def mounted(folder, options):
    """A small disk in the place of a folder."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False)
    if done.returncode != 0:
        pytest.skip("mounting a small disk needs rights that we lack")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(("place", "size"), [(".dayahead/fits", "300k"), ("results", "24k")])
def test_a_disk_that_is_full(project, undisturbed, place, size):
    project.forget()
    with mounted(project.folder / place, f"size={size}"):
        refused(project.stage("train"), rf"No space left on device: .*{place.split('/')[-1]}.*kept")
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("place", [".dayahead/fits", "results", "models"])
def test_a_folder_that_may_not_be_written_to(project, undisturbed, place):
    project.forget()
    with mounted(project.folder / place, "ro"):
        refused(project.stage("train"), rf"Read-only file system: .*{place.split('/')[-1]}.*rights")
    ends_equal(project, undisturbed)


def test_too_little_memory_to_begin(project, undisturbed):
    project.forget()
    assert project.run("prlimit --as=2000000000 python stages/train.py")[0] != 0
    ends_equal(project, undisturbed)


def limit(process):
    """Let a process have no more memory than it has."""
    size = process.memory_info().vms
    resource.prlimit(process.pid, resource.RLIMIT_AS, (size, size))


def test_memory_runs_out(project, undisturbed):
    project.forget()
    process = under_way(project)
    limit(psutil.Process(process.pid))
    said, _ = process.communicate(timeout=600)
    refused((process.returncode, said), OUT_OF_MEMORY)
    ends_equal(project, undisturbed)


@pytest.mark.parametrize("place", [0, 1])
def test_memory_of_one_process_runs_out_once(project, undisturbed_pair, place):
    process = under_way(project)
    limit(workers_of(process)[place])
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "all are started again" in said
    ends_equal(project, undisturbed_pair)


def test_memory_of_one_process_runs_out_for_good(project, undisturbed_pair):
    with project.changed("compute", max_restarts=0):
        process = under_way(project)
        limit(workers_of(process)[1])
        said, _ = process.communicate(timeout=600)
        refused((process.returncode, said), OUT_OF_MEMORY)
    ends_equal(project, undisturbed_pair)
