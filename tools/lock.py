"""Compile the lock files from pyproject.toml: for a run, for CUDA, for development, for tools.

Versions that the files name stay where they fit; for a file that is not there the newest are taken.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pip_settings import uv_environment

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
COMPILE = (
    *("pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-header"),
    *("--fork-strategy", "fewest", "--generate-hashes", "--no-annotate", "--python"),
)
PIN = re.compile(r"^([a-z0-9-]+)==.*\n(?:    .*\n)*", re.MULTILINE)
"""A package with its hashes."""
CUDA = re.compile(r"nvidia-|cuda-|triton$")
"""What torch's ordinary wheel needs besides, on Linux."""
TESTED = ("triton",)
"""Of those, what tests need beside torch's CPU wheel too."""
RUN, CUDA_FILE, DEV = "requirements.txt", "requirements-cuda.txt", "requirements-dev.txt"
SETUP, DOCS = "requirements-setup.txt", "requirements-docs.txt"
HEADS = {
    RUN: "What a run needs; on Linux torch's ordinary wheel needs requirements-cuda.txt besides.",
    CUDA_FILE: "What torch's ordinary wheel needs on Linux.",
    DEV: "What tests, checks and benchmarks need besides requirements.txt.",
    SETUP: "What sets up .venv, and builds the packages that have no wheel.",
    DOCS: "The tools of `make docs`, in an environment of their own.",
}

Pins = dict[str, str]
"""Packages and their lines, by name."""


def main() -> None:
    """Write all of them, or none."""
    known = {name: text_of(ROOT / name) for name in HEADS}
    project = ["pyproject.toml", "--group", "dev"]
    everything = compiled(known[RUN] + known[CUDA_FILE] + known[DEV], *project)
    run = compiled("".join(everything.values()), "pyproject.toml")
    locked = {
        RUN: {name: pin for name, pin in run.items() if not CUDA.match(name)},
        CUDA_FILE: {name: pin for name, pin in run.items() if CUDA.match(name)},
        DEV: {name: pin for name, pin in everything.items() if name not in run or name in TESTED},
        SETUP: compiled(known[SETUP], "--group", "setup"),
        DOCS: compiled(known[DOCS], "--group", "docs"),
    }
    for name, pins in locked.items():
        head = f"# {HEADS[name]}\n# Written by `make lock`.\n"
        (ROOT / name).write_text(head + "".join(pins.values()), encoding="utf-8")


def compiled(known: str, *what: str) -> Pins:
    """Return the packages that something needs, in the versions of `known` where they fit."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        output.write_text(known, encoding="utf-8")
        command = [UV, *COMPILE, sys.executable, "--output-file", output, *what]
        variables = uv_environment(with_more=False)
        if status := subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode:
            sys.exit(status)
        pins: Pins = {}
        for pin in PIN.finditer(text_of(output)):
            pins[pin[1]] = pins.get(pin[1], "") + pin[0]  # a package may have two, with markers
        return pins


def text_of(file: Path) -> str:
    """Return a file's text, none if it is not there."""
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    main()
