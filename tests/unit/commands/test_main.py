"""The commands `cache` and `compare`: what is listed, removed, compared and refused."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.cache import KINDS, Cache
from dayahead.core.errors import ComparisonError, ConfigError
from dayahead.tracking.outbox import Outbox
from support.results_folders import write_results

DAY = 86_400
ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path / ".dayahead"


def output_of(*options):
    result = CliRunner().invoke(app, ["cache", *options])
    assert result.exit_code == 0, result.output
    return result.output


def put(root, key, days_ago, kind="fits"):
    cache = Cache(root / kind)
    cache.put(key, lambda folder: (folder / "state.safetensors").write_bytes(b"x" * 2**20))
    then = time.time() - days_ago * DAY
    os.utime(cache.folder / key, (then, then))
    return cache


def test_an_empty_cache_is_listed_and_not_created(root):
    lines = output_of().splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [*KINDS]
    assert lines[-1] == f"0.0 MiB in {root}"
    assert not root.exists()


def test_entries_are_listed_with_size_and_last_use(root):
    used = [put(root, key, days).folder / key for key, days in (("a", 1), ("b", 2))]
    [line] = [line for line in output_of().splitlines() if line.startswith("fits")]
    day, before = (time.strftime("%Y-%m-%d", time.gmtime(path.stat().st_mtime)) for path in used)
    assert line.split() == [
        *("fits", "2", "2.0", before, "to", day),
        *("models", "after", "a", "window"),
    ]


def test_pruning_removes_unused_entries_of_every_kind(root):
    fits = put(root, "old", 40)
    put(root, "new", 20)
    put(root, "used", 40)
    downloads = put(root, "old", 40, kind="downloads")
    assert fits.get("used", lambda folder: folder.name) == "used"
    assert "2 entries removed" in output_of("--prune", "30")
    assert sorted(fits.keys()) == ["new", "used"]
    assert downloads.keys() == []


def test_pruning_removes_the_records_that_trackers_have_and_names_the_others(root):
    for name, sinks in (("sent", []), ("unsent", ["mlflow"])):
        Outbox(root / "outbox" / name / "train.jsonl").append("start", at=1, sinks=sinks)
    said = output_of("--prune", "0")
    assert "1 outboxes of as old runs removed" in said
    assert f"{root / 'outbox/unsent/train.jsonl'}: kept, for mlflow has not all" in said
    assert "1 outboxes" in output_of("--prune", "0", "--undelivered")
    assert not [*(root / "outbox").iterdir()]
    with pytest.raises(ConfigError, match="--undelivered goes with --prune"):
        CliRunner().invoke(app, ["cache", "--undelivered"], catch_exceptions=False)


@pytest.mark.parametrize("runs", ["a,a", "a,,b", ""])
def test_runs_to_compare_are_named_once(runs):
    with pytest.raises(ComparisonError, match="expected different runs, separated by commas"):
        CliRunner().invoke(app, ["compare", runs, "b"], catch_exceptions=False)


def test_runs_of_several_seeds_are_compared_in_any_folder_of_the_project(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(ROOT / "docs")
    days = {f"2019-10-0{day}": [day, 0, 2 * day, 1] for day in range(2, 8)}
    names = [str(write_results(tmp_path / name, days)) for name in "abcd"]
    result = CliRunner().invoke(app, ["compare", ",".join(names[:2]), ",".join(names[2:])])
    assert "6 windows, 24 sessions" in result.output
    assert "The runs are equal" in result.output
