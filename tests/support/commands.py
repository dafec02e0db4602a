"""Programs that run as from a user's shell, with an environment of their own."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
"""PATH where the programs of this Python come first."""


def run(folder: Path, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it gets these variables, PATH and HOME, and no others."""
    given = {"PATH": PROGRAMS, "HOME": str(folder), "DVC_NO_ANALYTICS": "1"}
    return subprocess.run(
        command, cwd=folder, env=given | environment, capture_output=True, text=True, check=False
    )
