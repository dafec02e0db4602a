"""A real MLflow server for the length of a test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from support.waiting import wait_until


@contextmanager
def server(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the database in `folder`; the process leads a group of its own."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1"]
    command += ["--port", address.rpartition(":")[2]]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "served")]
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _answers(address), 120, f"no answer from {address}")
        yield process
    finally:
        with suppress(ProcessLookupError):  # killed by the test
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
            process.wait(60)
            os.killpg(process.pid, signal.SIGKILL)


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/health"):
            return True
    except (URLError, ConnectionError):
        return False
