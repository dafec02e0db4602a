"""How a disturbed run is brought about, and what it may come to."""

import os
import random
import re
import signal
import time
from pathlib import Path

import psutil


def ends_equal(project, undisturbed):
    """Run what is left to run, and compare."""
    for stage in ("train", "aggregate"):
        status, said = project.stage(stage)
        assert status == 0, said
    assert project.left() == undisturbed.left


def refused(outcome, pattern):
    """One clear error: a status, a line that says what, and no traceback."""
    status, said = outcome
    assert status != 0
    assert "Traceback" not in said, said
    assert re.search(pattern, said), said


def under_way(project, command="python stages/train.py", n_measured=0, **environment):
    """Begin to train, and wait until the first fit is kept, and so many windows are measured."""
    process = project.start(command, **environment)
    store = project.folder / ".dayahead"
    while process.poll() is None and not (
        any(store.glob("fits/*/fit.json"))
        and len(list(store.glob("measures/*/measured.json"))) >= n_measured
    ):
        time.sleep(0.05)
    return process


def killed(project, n_measured=0):
    """Train until the first fit is kept, and so many windows are measured, and no further."""
    process = under_way(project, n_measured=n_measured)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def workers_of(process):
    """Processes that a stage started to share its work, in the order of their start."""
    found = psutil.Process(process.pid).children(recursive=True)
    return [child for child in found if "spawn_main" in " ".join(_words(child))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:  # over already
        return []


def harm(path: Path, seed: int) -> None:
    """Flip a bit or cut the end off (every third), in a file of its own: links stay whole."""
    dice = random.Random(seed)
    held = bytearray(path.read_bytes())
    place = dice.randrange(len(held))
    held[place] ^= 1 << dice.randrange(8)
    path.unlink()
    path.write_bytes(held[:place] if seed % 3 == 0 else held)
