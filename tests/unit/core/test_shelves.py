"""What the store holds is listed, and cleared of what has been of no use lately."""

import os
import time
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.store import Entries

DAY = 86_400


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path / ".dayahead"


def asked(*options):
    result = CliRunner().invoke(app, ["states", *options])
    assert result.exit_code == 0, result.output
    return result.output


def put(store, key, days_ago):
    fits = Entries(store / "fits")
    fits.put(key, lambda folder: (folder / "state.safetensors").write_bytes(b"x" * 2**20))
    then = time.time() - days_ago * DAY
    os.utime(store / "fits" / key, (then, then))
    return fits


def test_an_empty_store_holds_nothing(store):
    assert "0.0 MiB" in asked()
    assert not (store / "fits").exists()


def test_lists_entries_and_their_size(store):
    put(store, "a", 1)
    put(store, "b", 2)
    [line] = [line for line in asked().splitlines() if line.startswith("fits")]
    assert line.split() == ["fits", "2", "models", "after", "a", "window", "2.0", "MiB"]


def test_clears_what_was_not_used(store):
    fits = put(store, "old", 40)
    put(store, "new", 20)
    put(store, "used", 40)
    assert fits.get("used", lambda folder: folder.name) == "used"
    assert "1 entries removed" in asked("--prune", "30")
    assert [fits.get(key, lambda folder: folder.name) for key in ("old", "new", "used")] == [
        *(None, "new", "used")
    ]
    assert not [path for path in (store / "fits").iterdir() if "cleared" in path.name]


def test_what_a_run_is_at_work_in_stays(store):
    slots = [store / "downloads" / name for name in ("busy", "idle")]
    for slot in slots:
        slot.mkdir(parents=True)
        Path(f"{slot}.lock").touch()
        os.utime(slot, (0, 0))
    with FileLock(f"{slots[0]}.lock"):
        assert "1 entries removed" in asked("--prune", "30")
    assert [slot.exists() for slot in slots] == [True, False]


def test_files_set_aside_go_too(store):
    aside = [store / "windows" / "blobs" / "ab" / f"{name}.damaged" for name in ("old", "new")]
    for path in aside:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    os.utime(aside[0], (0, 0))
    asked("--prune", "30")
    assert [path.exists() for path in aside] == [False, True]
