"""A Redis server, where one is installed."""

import shutil
import subprocess
from contextlib import contextmanager

import pytest

from support.ports import reserved_port
from support.waiting import wait_until


@contextmanager
def running_redis(folder):
    """Run a server that writes each event to disk before it answers; yield its URL and process."""
    redis = pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian package redis-server)")

    def answers():
        try:
            return redis.Redis(port=port).ping()
        except redis.RedisError:
            return False

    with reserved_port() as port:
        command = [
            *("redis-server", "--port", str(port), "--dir", str(folder), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always", "--bind", "127.0.0.1"),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                wait_until(answers)
                yield f"redis://127.0.0.1:{port}", server
            finally:
                server.terminate()
