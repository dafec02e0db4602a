"""A stage runs once at a time in a project."""

import subprocess
import sys

import pytest

from dayahead.core.errors import BusyError
from dayahead.core.locks import stage_lock

HOLDER = """
from dayahead.core.locks import stage_lock
with stage_lock("train"):
    print("held", flush=True)
    input()
"""


def test_a_second_process_names_the_first_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        line = rf"process {holder.pid} still runs the stage train .* \(`kill {holder.pid}`\)"
        with pytest.raises(BusyError, match=line), stage_lock("train"):
            pass
        with stage_lock("aggregate"):
            pass
        holder.kill()
    with stage_lock("train"):
        pass
