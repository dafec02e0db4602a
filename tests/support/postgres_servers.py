"""A PostgreSQL server, where one is installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from support.ports import reserved_port

USER, PASSWORD = "shop", "pa/ss w%o'r\"d?#@:1"
"""A password with each sign that divides an address."""


def _binaries():
    """Return the folder of initdb and pg_ctl, which Debian leaves out of PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def running_postgres():
    """Run a server that asks for the password; yield the URL of its database."""
    if (binaries := _binaries()) is None:
        pytest.skip("no PostgreSQL server is installed (Debian package postgresql)")
    # The server refuses to run as root, and another user may not read the folders of pytest.
    is_root = os.geteuid() == 0
    account = pwd.getpwnam("postgres") if is_root else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder, secret = Path(name), Path(name, "password")
        secret.write_text(PASSWORD)
        for path in (folder, secret):
            os.chown(path, account.pw_uid, account.pw_gid)

        def run(program, *arguments):
            """Run one of its programs as its own user."""
            command = [binaries / program, "--pgdata", folder / "data", *arguments]
            as_user = {"user": account.pw_uid, "group": account.pw_gid} if is_root else {}
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)

        options = ["--username", USER, "--pwfile", secret, "--auth", "scram-sha-256", "--no-sync"]
        run("initdb", *options, "--encoding", "UTF8", "--locale", "C.UTF-8")
        with reserved_port() as port:
            settings = f"-c listen_addresses=127.0.0.1 -c fsync=off -p {port} -k {folder}"
            run("pg_ctl", "start", "--wait", "--log", folder / "log", "--options", settings)
            try:
                yield f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            finally:
                run("pg_ctl", "stop", "--mode", "immediate")
