"""Runs on two machines: network namespaces with names and addresses of their own."""

import os
import shutil
import subprocess
import time

import pytest

from support.launched_study import (
    assert_equal,
    errors_in,
    left_in,
    ranks,
    study_command,
    torchrun_variables,
    wait_for,
    write_host,
)

pytestmark = pytest.mark.slow
ADDRESSES = ("10.213.77.1", "10.213.77.2")
PORT = "29500"
SET_NAME = 'hostname "$0" && exec "$@"'


class Machines:
    """Two namespaces and the cable between them."""

    def __init__(self):
        self.names = [f"dayahead{os.getpid()}{letter}" for letter in "ab"]
        self.ends = [f"da{os.getpid() % 10**8}{letter}" for letter in "ab"]

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            for each in ("lo", end):
                ip("-n", name, "link", "set", each, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "delete", name, check=False)

    def on(self, number, command):
        """Return the command that runs a command on a machine."""
        name = self.names[number]
        inside = ["unshare", "--uts", "sh", "-c", SET_NAME, f"host-{'ab'[number]}"]
        return ["ip", "netns", "exec", name, *inside, *command]

    def set_link(self, state):
        """Connect (up) or disconnect (down) the first machine."""
        ip("-n", self.names[0], "link", "set", self.ends[0], state)


def ip(*words, check=True):
    subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def machines():
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs the programs ip and unshare (iproute2, util-linux)")
    started = Machines()
    try:
        started.__enter__()
        subprocess.run(started.on(0, ["true"]), capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        started.__exit__()
        pytest.skip(f"network namespaces do not work here: {error}, {error.stderr.strip()}")
    yield started
    started.__exit__()


@pytest.fixture
def hosts(tmp_path):
    """A copy of the windows on each machine."""
    return [write_host(tmp_path / name) for name in ("a", "b")]


def start_on(machines, hosts, started, timeout=None):
    """Start a process of the study on each machine."""
    for rank, folder in enumerate(hosts):
        command = machines.on(rank, study_command(*([timeout] if timeout else [])))
        started.start(command, folder, **torchrun_variables(rank, PORT, ADDRESSES[0]))


def run_on(machines, hosts):
    """Run the study to its end."""
    with ranks() as started:
        start_on(machines, hosts, started)
        said = started.said()
    assert started.statuses == [0, 0], said
    return said


def test_torchrun_on_two_machines_agrees_with_one_process(machines, hosts, one, two):
    agent = ["torchrun", "--nnodes=2", "--nproc-per-node=1", f"--master-addr={ADDRESSES[0]}"]
    with ranks() as started:
        for number, folder in enumerate(hosts):
            node = [f"--node-rank={number}", f"--master-port={PORT}"]
            command = [*agent, *node, *study_command()[1:]]
            started.start(machines.on(number, command), folder)
        said = started.said()
    assert started.statuses == [0, 0], said
    assert_equal(one, hosts[0])
    assert left_in(hosts[0]) == left_in(two)
    assert [path.name for path in hosts[1].iterdir()] == ["windows"]


def test_a_lost_connection_ends_both_and_a_rerun_resumes(machines, hosts, two):
    with ranks() as started:
        start_on(machines, hosts, started, timeout=5)
        wait_for("2026-01-03", started.processes[0])
        machines.set_link("down")
        start = time.monotonic()
        said = started.said(timeout=60)
        seconds = time.monotonic() - start
        machines.set_link("up")
    assert started.statuses == [1, 1], said
    assert seconds < 5 + 0.5 + 2 + 10
    for rank, each in enumerate(said):
        [line] = errors_in(each)
        assert f"process {rank} of 2 on host-{'ab'[rank]}: no sign of another process " in line
        assert "for 5 s" in line
    assert "from the cache" in run_on(machines, hosts)[0]
    assert left_in(hosts[0]) == left_in(two)


def test_different_files_are_reported_with_their_machines(machines, hosts):
    (hosts[1] / "windows" / "statistics.json").write_text("{}")
    with ranks() as started:
        start_on(machines, hosts, started)
        said = started.said()
    assert started.statuses == [1, 1]
    for each in said:
        [line] = errors_in(each)
        assert line.count(" is ") == 1
        assert f"in host-a:{hosts[0]}, " in line
        assert f"in host-b:{hosts[1]}; " in line


def test_a_loopback_address_is_reported(machines, hosts):
    """Debian gives a machine's name the address 127.0.1.1 on the machine itself."""
    with ranks() as started:
        for rank, address in enumerate(("127.0.1.1", ADDRESSES[0])):
            command = machines.on(rank, study_command())
            started.start(command, hosts[rank], **torchrun_variables(rank, PORT, address))
        said = started.said()
    assert started.statuses == [1, 1]
    for each in said:
        [line] = errors_in(each)
        assert "MASTER_ADDR resolves to 127.0.0.1 on host-a, which no other machine" in line
