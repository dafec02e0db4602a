"""`python guard.py COMMAND...`: run a command until it ends or the parent closes stdin.

When the parent closes stdin, or dies in any way, the command and its children get SIGINT, as by
Ctrl-C, which ends a stage of DVC in order; processes of its group that are left after a minute are
killed. It is run as a file and imports nothing of ours, so that it starts at once.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

GRACE_SECONDS = 60.0


def start_guarded(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[Any],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process, or when the returned one's stdin is closed.

    Its stdout and stderr go to `output`.
    """
    return subprocess.Popen(
        [sys.executable, "-P", __file__, *command],  # -P: else our profile.py shadows Python's
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
    )


def main() -> None:
    """Run the command in a process group of its own, and end with its exit status."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN: the command would inherit it
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()
    sys.exit(child.wait())


def _stop_at_end_of_stdin() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
