"""The command `recommend`: which ids it takes, and what it says of those it does not know."""

import re
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError, DataError
from dayahead.serve.recommender import Recommender
from support.tiny_settings import train_study
from support.window_folders import write_window_folder

DAYS = [[[1, 2, 3], [3, 2], [2, 3]], [[4, 3, 3]]]
"""Item 3 is the most popular of day 1, on which the model is fitted last."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    windows = write_window_folder(folder / "windows", DAYS)
    train_study(windows, folder, {"model": {"architecture": "transitions"}})
    return folder / "models"


@pytest.fixture
def ask(models):
    def ask(*options):
        result = CliRunner().invoke(app, ["recommend", "--models", str(models), *options])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        items = [line.split("\t")[0] for line in result.stdout.splitlines()]
        return items, result.stderr

    return ask


def test_unknown_ids_are_named(ask):
    items, said = ask("--session", "1,2")
    assert (items[0], said) == ("3", "")
    items, said = ask("--session", "98,1,99,99,2")
    assert items[0] == "3"
    assert said == "2 of 4 item ids are unknown to the model: 98, 99\n"


def test_a_session_of_unknown_ids_is_refused(ask):
    with pytest.raises(DataError, match=r"none of the item ids .*98, 99.*--cold-start popularity"):
        ask("--session", "98,99")


def test_a_session_of_unknown_ids_gets_the_popular_items_if_asked_for(ask):
    items, said = ask("--session", "98", "--cold-start", "popularity")
    assert items == ["3", "4", "1", "2"]  # events of day 1: two, one, none, none
    assert "1 of 1 item ids are unknown to the model: 98" in said


def test_items_of_the_session_are_left_out_if_asked_for(ask):
    assert set(ask("--session", "1,3")[0]) == {"1", "2", "3", "4"}
    assert set(ask("--session", "1,3", "--exclude-seen")[0]) == {"2", "4"}


def test_an_id_may_be_given_alone_or_in_quotes(ask):
    expected = ask("--session", "1,2")
    assert ask("--item", "1", "--item", "2") == expected
    assert ask("--session", '"1", "2"') == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give one of --session"),
        (("--session", "1", "--item", "2"), "give one of --session"),
        (("--item", "1,2"), "item id '1,2'"),
        (("--session", '1,"2'), "quote"),
        (("--session", " , "), "no item id"),
    ],
)
def test_sessions_that_cannot_be_read_are_refused(ask, options, message):
    with pytest.raises((ConfigError, DataError), match=message):
        ask(*options)


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    windows = write_window_folder(folder / "windows", [*DAYS, *DAYS])
    train_study(windows, folder, {"model": {"architecture": "memory"}})
    return folder / "models"


def test_reasons_are_named_and_the_strongest_come_first(memory):
    options = ["recommend", "--models", str(memory), "--session", "1,2", "--explain"]
    rows = [line.split("\t") for line in CliRunner().invoke(app, options).stdout.splitlines()]
    assert len(rows) == 4
    for _, _, reasons in rows:
        named = dict(re.findall(r"(\w.*?) ([+-]\d+\.\d\d)(?:, |$)", reasons))
        assert len(named) == 3
        sizes = [abs(float(value)) for value in named.values()]
        assert sizes == sorted(sizes, reverse=True)
        assert not any("." in name for name in named)


def test_reasons_add_up_to_the_lead_over_the_mean_candidate(memory):
    model = Recommender.load(memory)
    log = model.events_of([1, 2])
    top = model.recommend_after(log, 4)
    leads = [sum(parts.values()) for parts in model.explain(log, [item for item, _ in top])]
    scores = [score for _, score in top]
    assert np.diff(leads) == pytest.approx(np.diff(scores), abs=1e-3)


def test_popularity_is_the_reason_after_unknown_items(memory):
    options = ["--session", "98", "--cold-start", "popularity", "--explain"]
    result = CliRunner().invoke(app, ["recommend", "--models", str(memory), *options])
    assert {line.split("\t")[2] for line in result.stdout.splitlines()} == {"popularity"}


@pytest.fixture
def sessions(tmp_path):
    table = pa.table({"session_id": ["a", "b", "c"], "item_id": [[1, 2], [98], []]})
    pq.write_table(table, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def test_the_sessions_of_a_file_are_answered(models, tmp_path, sessions):
    output = tmp_path / "out.parquet"
    options = ["--models", str(models), "--sessions", str(sessions), "--output", str(output)]
    result = CliRunner().invoke(app, ["recommend", *options, "--top-k", "2"])
    assert result.exit_code == 0
    found = pq.read_table(output).to_pylist()
    assert [row["session_id"] for row in found] == ["a", "a"]
    assert (found[0]["item"], found[0]["rank"]) == (3, 1)
    assert "2 recommendations for 3 sessions, of which 2 have no item" in result.stdout
    assert "--cold-start popularity" in result.stderr


WAITING = """
import time
from dayahead.__main__ import main
from dayahead.serve.recommender import Recommender
Recommender.rank = lambda *_: (print("asked", flush=True), time.sleep(60))
main()
"""


@pytest.mark.slow
def test_a_signal_to_stop_leaves_no_file(models, tmp_path, sessions):
    folder = tmp_path / "answers"
    options = ["--models", models, "--sessions", sessions, "--output", folder / "out.parquet"]
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, "recommend", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "asked\n"
        assert len(list(folder.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1].startswith("error: stopped by SIGTERM")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--sessions", "in.parquet"),
        ("--session", "1", "--output", "o.parquet"),
        ("--sessions", "in.parquet", "--output", "o.parquet", "--explain"),
        ("--sessions", "in.parquet", "--output", "o.parquet", "--session", "1"),
        ("--sessions", "in.parquet", "--output", "o.parquet", "--past", "p.csv"),
    ],
)
def test_options_that_do_not_go_together_are_refused(ask, options):
    with pytest.raises(ConfigError, match=r"recommend: "):
        ask(*options)
