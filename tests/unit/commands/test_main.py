"""The commands `cache` and `compare`: what is listed, removed, compared and refused."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.cache import KINDS, Cache
from dayahead.core.errors import ComparisonError, ConfigError, DataError
from dayahead.sharing.study import StudyEntries
from dayahead.tracking.outbox import Outbox
from support.dvc_remotes import dvc_project
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


@pytest.mark.parametrize("options", [["--prune", "3"], ["--undelivered"]])
def test_pruning_goes_with_no_push(options):
    with pytest.raises(ConfigError, match=f"{options[0]} does not go with push"):
        CliRunner().invoke(app, ["cache", *options, "push"], catch_exceptions=False)


@pytest.fixture
def two_projects(tmp_path, monkeypatch):
    """Makes one of two projects with a common remote the current one; returns its cache."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    study = StudyEntries([("evaluations", "e")], [[("fits", "a"), ("fits", "b")]])
    monkeypatch.setattr("dayahead.sharing.study.study_entries", lambda root: study)

    def change_to(name):
        if not (tmp_path / name).exists():
            dvc_project(tmp_path / name, store=str(tmp_path / "store"))
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / name))
        return tmp_path / name / ".dayahead"

    return change_to


def columns(output, kind):
    return next(line.split()[1:] for line in output.splitlines() if line.startswith(kind))


@pytest.mark.parametrize(("options", "fits"), [([], ["b"]), (["--all-fits"], ["b", "a"])])
def test_the_newest_fit_or_all_are_pushed_and_pulled(two_projects, options, fits):
    root = two_projects("one")
    for key in ("a", "b", "of another study"):
        put(root, key, 1)
    assert columns(output_of("push", *options), "fits")[0] == str(len(fits))
    assert columns(output_of("push", "store", *options), "all")[0] == "0"
    root = two_projects("two")
    output = output_of("pull", *options)
    assert columns(output, "fits")[0] == str(len(fits))
    assert output.splitlines()[-1].startswith("from remote store (")
    assert set(Cache(root / "fits").keys()) == set(fits)
    assert columns(output_of("pull", *options), "all") == ["0", "0", "0.0", str(len(fits))]


def test_entries_left_out_end_in_an_error_that_names_each(two_projects, tmp_path):
    put(two_projects("one"), "b", 1)
    output_of("push")
    [file] = (tmp_path / "store").rglob("files/*")
    file.write_bytes(b"")
    two_projects("two")
    with pytest.raises(DataError, match=r"1 entries were left out:\n  fits/b: state.* is damaged"):
        CliRunner().invoke(app, ["cache", "pull"], catch_exceptions=False)


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
