"""Run `pip install` with these arguments; say what takes time and, of pip's messages, errors."""

import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

EVERY = 25
"""Packages from one line to the next."""
LARGE = re.compile(r"Downloading (\S+) \((\d{3}[\d.]* MB|[\d.]+ GB)\)")
PIP = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
INSTALLING = "Installing collected packages: "


def main() -> int:
    """Return pip's exit status."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        command = [sys.executable, *PIP, *sys.argv[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as pip:
            assert pip.stdout is not None
            n_found = 0
            for line in map(str.strip, pip.stdout):
                n_found += line.startswith(("Collecting ", "Processing "))
                if said := progress(line, n_found):
                    say(said)
                if line.startswith(INSTALLING):
                    say_how_many(pip)
        errors.seek(0)
        if pip.returncode:
            sys.stderr.writelines(line for line in errors if not line.startswith("WARNING:"))
    return pip.returncode


def say_how_many(pip: subprocess.Popen[str]) -> None:
    """Follow an installation, of which pip itself says nothing, to its end."""
    folder = Path(sysconfig.get_path("purelib"))
    n_before = n_said = len(list(folder.glob("*.dist-info")))
    while pip.poll() is None:
        time.sleep(0.5)
        n_now = len(list(folder.glob("*.dist-info")))
        if n_now >= n_said + EVERY:
            n_said = n_now
            say(f"{n_now - n_before} installed")


def say(what: str) -> None:
    """Print it at once."""
    sys.stdout.write(f"  {what} ...\n")
    sys.stdout.flush()


def progress(line: str, n_found: int) -> str | None:
    """Return what a line of pip's says that a user waits for, `n_found` packages into the list."""
    if line.startswith(("Collecting ", "Processing ")):
        return f"{n_found} packages found" if n_found % EVERY == 0 else None
    if large := LARGE.match(line):
        return f"downloading {large[1]}, {large[2]}"
    if line.startswith("Building wheel for ") and line.endswith("started"):
        return f"building {line.split()[3]}"
    if line.startswith(INSTALLING):
        n_installed = line.count(",") + 1
        return f"installing {n_installed} package{'s' * (n_installed > 1)}"
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
