"""The garbage collector leaves alone what lives to the end of a process."""

import subprocess
import sys

SCRIPT = """
import gc
from dayahead.core.errors import exit_with_message

with exit_with_message():
    print(gc.get_threshold()[0])
    gc.collect()
    gc.callbacks.append(lambda phase, info: print(phase, len(gc.get_objects()) < 100))
"""


def test_a_process_collects_rarely_and_nothing_at_its_end():
    command = [sys.executable, "-c", SCRIPT]
    first, *others = subprocess.check_output(command, text=True).splitlines()
    assert first == "10000"
    assert set(others) == {"start True", "stop True"}
