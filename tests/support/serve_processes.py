"""`dayahead serve` as a process."""

import re
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple


class Serving(NamedTuple):
    """A service that runs."""

    process: subprocess.Popen
    port: int
    said: str
    """The line that it printed when it began to answer."""


@contextmanager
def serving(*options, **more):
    """Start a service on a free port; it is killed at the end. `more` is for Popen."""
    command = [sys.executable, "-m", "dayahead", "serve", "--port", "0", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as process:
        try:
            said = process.stdout.readline()
            yield Serving(process, int(re.search(r"http://127\.0\.0\.1:(\d+)$", said)[1]), said)
        finally:
            process.kill()
