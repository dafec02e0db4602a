"""Peak memory: of this process and of what it starts."""

import subprocess
import sys
import time

import pytest

from measurement import peak_memory

HOLD = "import time; held = bytearray(300_000_000); held[:] = b'x' * len(held); time.sleep(1)"


@pytest.mark.slow
def test_a_child_counts_too():
    with peak_memory() as before:
        time.sleep(0.3)
    with peak_memory() as peak:
        subprocess.run([sys.executable, "-c", HOLD], check=True)
    assert peak.bytes - before.bytes > 250_000_000
