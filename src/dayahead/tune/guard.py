"""`python guard.py COMMAND...`: run a command for as long as the parent wants it.

The parent holds the other end of stdin. When it closes that, or dies however roughly, the command
and all that it started get the SIGINT of a Ctrl-C, which ends a stage of DVC in order; what is left
after a minute is killed.
"""

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 60.0


def main() -> None:
    """Run the command in a process group of its own, and end with its exit status."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
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
