"""Waiting OpenMP threads spin as libgomp likes on a quiet machine, and sleep at once on a busy one."""

import os
import subprocess
import sys

import pytest

from dayahead.core.openmp import NO_SPINS, MANY_SPINS, limit_spinning

NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.fixture
def unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("n_running", "n_allowed", "expected"),
    [
        (1, 4, MANY_SPINS),
        (2, 4, NO_SPINS),
        (9, 4, NO_SPINS),
        (3, 2, MANY_SPINS),  # two others have the two cores beside ours
        (4, 2, NO_SPINS),
    ],
)
def test_others_that_run_on_our_cores_make_waiting_threads_sleep(
    unset, tmp_path, n_running, n_allowed, expected
):
    unset.setattr(os, "cpu_count", lambda: 4)
    unset.setattr(os, "sched_getaffinity", lambda _: set(range(n_allowed)))
    stat = tmp_path / "stat"
    stat.write_text(f"cpu 1 2 3\nprocs_running {n_running}\nprocs_blocked 0\n")
    limit_spinning(stat)
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_systems_that_do_not_say_are_left_alone(unset, tmp_path):
    limit_spinning(tmp_path / "none")
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_has_set_stands(unset, tmp_path, name):
    unset.setenv(name, "PASSIVE")
    before = dict(os.environ)
    stat = tmp_path / "stat"
    stat.write_text("procs_running 99\n")
    limit_spinning(stat)
    assert dict(os.environ) == before


def test_torchs_libgomp_reads_it(unset):
    """As it says itself, loaded after this package; with more threads than cores all are busy."""
    command = "import os; os.cpu_count = lambda: 0; import dayahead.model.rng"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | {"OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert found
    assert all(f"'{NO_SPINS}'" in line for line in found)
