"""A real MLflow server for the length of a test."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


def free_address() -> str:
    """An address on this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


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
        _await(address)
        yield process
    finally:
        with suppress(ProcessLookupError):  # killed by the test
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
            process.wait(60)
            os.killpg(process.pid, signal.SIGKILL)


def _await(address: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{address}/health"):
                return
        except (URLError, ConnectionError):
            time.sleep(0.2)
    raise TimeoutError(address)


@contextmanager
def slowed(process: subprocess.Popen[bytes], asleep: float, awake: float) -> Iterator[None]:
    """Let a server sleep most of the time: it takes every request, and answers late."""
    done = threading.Event()

    def doze() -> None:
        while not done.is_set():
            os.killpg(process.pid, signal.SIGSTOP)
            done.wait(asleep)
            os.killpg(process.pid, signal.SIGCONT)
            done.wait(awake)

    thread = threading.Thread(target=doze)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
