"""Real nights of a tiny shop, fed day by day: one more window each, the bytes of a single run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.shop_project import SETTINGS, Clone, make_shop, write_log

pytestmark = pytest.mark.slow
N_DAYS = 8
FIRST = 5
"""Days delivered on the first night; the last one's window is open."""
SHOP = SETTINGS | {
    "model": {"architecture": "transitions"},
    "window": {"min_sessions": 50},
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop, and the files of its days, of which none is delivered."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "all").mkdir()
    (folder / "logs").mkdir()
    clone = Clone(folder / "project", folder / "logs")
    make_shop(clone, SHOP)
    return clone, write_log(folder / "all", N_DAYS)


def nightly(clone, *options):
    command = [sys.executable, "-m", "dayahead", "nightly", *options]
    place = {"cwd": clone.folder, "env": clone.environment}
    return subprocess.run(command, **place, text=True, capture_output=True, check=False)


def night(clone):
    """Run a night; return its outcome."""
    done = nightly(clone, "--json")
    assert done.stdout, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["status"] == done.returncode
    return outcome["outcome"], outcome["window"]


def deliver(clone, *days):
    for day in days:
        shutil.copy(day, clone.folder.parent / "logs")


def serving(clone):
    return (clone.folder / "published/current").readlink().name


def test_nights_publish_window_after_window(shop):
    clone, days = shop
    deliver(clone, *days[:FIRST])
    assert night(clone) == ("published", "2026-01-04")
    assert night(clone) == ("nothing new", "2026-01-04")
    params = (clone.folder / "params.yaml").read_bytes()
    deliver(clone, days[FIRST])
    assert night(clone) == ("published", "2026-01-05")
    assert (clone.folder / "params.yaml").read_bytes() == params
    assert serving(clone).startswith("2026-01-05-")
    answer = clone.run("python -m dayahead recommend --models published/current --top-k 3 "
                       "--session 1 --cold-start popularity")  # fmt: skip
    assert len(answer.splitlines()) >= 3


def test_a_night_that_is_stopped_goes_on_when_it_is_called_again(shop):
    clone, days = shop
    deliver(clone, days[FIRST + 1])
    process = subprocess.Popen(
        [sys.executable, "-m", "dayahead", "nightly"], cwd=clone.folder, env=clone.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    trained = clone.folder / ".dayahead/train.pid"
    before = trained.stat().st_mtime
    while process.poll() is None and trained.stat().st_mtime == before:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "stopped by SIGTERM" in errors
    assert night(clone) == ("published", "2026-01-06")


def test_the_results_are_those_of_a_single_run(shop, tmp_path):
    clone, _ = shop
    whole = Clone(tmp_path / "whole", clone.folder.parent / "logs")
    make_shop(whole, SHOP)
    whole.run("dvc repro -q")
    assert clone.outputs() == whole.outputs()


def test_damaged_files_are_refused_and_the_model_stays(shop):
    clone, days = shop
    current = serving(clone)
    (clone.folder.parent / "logs" / days[FIRST + 2].name).write_bytes(b"not parquet")
    outcome, _ = night(clone)
    assert outcome == "refused"
    assert serving(clone) == current
    deliver(clone, days[FIRST + 2])
    assert night(clone) == ("published", "2026-01-07")


def test_a_source_that_is_away_is_a_reason_to_try_again(shop):
    clone, _ = shop
    logs = clone.folder.parent / "logs"
    logs.rename(logs.with_name("away"))
    try:
        done = nightly(clone)
    finally:
        logs.with_name("away").rename(logs)
    assert done.returncode == 75, done.stderr
    assert "no file matches" in done.stderr.splitlines()[-1]


def test_rollback_serves_the_model_before(shop):
    clone, _ = shop
    clone.run("python -m dayahead nightly --rollback --reason tried")
    assert serving(clone).startswith("2026-01-06-")


def test_files_of_whole_days_are_used_the_night_they_come(tmp_path):
    """And a corrected file is all that a refused day takes."""
    (tmp_path / "all").mkdir()
    (tmp_path / "logs").mkdir()
    clone = Clone(tmp_path / "project", tmp_path / "logs")
    make_shop(clone, SHOP)
    file = clone.folder / "datasets" / "shop.yaml"
    file.write_text(file.read_text().replace("time:\n", "time:\n  complete_until: yesterday\n"))
    days = write_log(tmp_path / "all", FIRST + 1)
    deliver(clone, *days[:FIRST])
    assert night(clone) == ("published", "2026-01-05")
    log = pq.read_table(days[FIRST])
    renumbered = pc.add(log["item_id"], 100_000)
    position = log.column_names.index("item_id")
    wrong = log.set_column(position, "item_id", renumbered)
    pq.write_table(wrong, tmp_path / "logs" / days[FIRST].name)
    assert night(clone) == ("refused", "2026-01-06")
    assert serving(clone).startswith("2026-01-05-")
    deliver(clone, days[FIRST])
    assert night(clone) == ("published", "2026-01-06")
