"""`dayahead inspect`: what it prints and writes, and what it leaves alone."""

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import load_dataset
from support.inspected_logs import log_lines


@pytest.fixture(autouse=True)
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rows = log_lines(header="session,item,time", row="s{visit},{item},{second}")
    (tmp_path / "shop log.csv").write_text(rows)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["inspect", *arguments])


def test_the_file_is_written_and_the_next_command_is_printed(shop):
    done = run("shop log.csv", "--name", "shop")
    assert done.exit_code == 0
    dataset = load_dataset("shop", shop / "datasets")
    assert dataset.source.urls == (str(shop / "shop log.csv"),)
    next_ = "Next: dvc exp run -q -S dataset=shop -S window.unit=hour -S window.length=6"
    shared = "params.yaml dvc.lock datasets/shop.yaml"
    lines = done.output.splitlines()
    assert lines[-3:] == ["datasets/shop.yaml: written", f"{next_} -S window.min_sessions=2",
                          f"then: git add {shared} && git commit -m shop"]  # fmt: skip
    assert any(line.split() == ["item", "int", "0.0%", "6"] for line in lines)
    assert any(line.startswith("columns.session_id") and "certain" in line for line in lines)


def test_the_name_is_that_of_the_file_unless_one_is_given(shop):
    assert run("shop log.csv").exit_code == 0
    assert (shop / "datasets/shop_log.yaml").is_file()
    refused = run("shop log.csv", "--name", "../shop").exception
    assert isinstance(refused, ConfigError)
    assert "expected letters" in str(refused)


def test_a_file_is_never_written_over_unless_forced(shop):
    (shop / "datasets").mkdir()
    path = shop / "datasets/shop.yaml"
    path.write_text("mine\n")
    done = run("shop log.csv", "--name", "shop")
    assert isinstance(done.exception, ConfigError)
    assert "--force" in str(done.exception)
    assert run("shop log.csv", "--name", "shop", "--dry-run").exit_code == 0
    assert path.read_text() == "mine\n"
    assert run("shop log.csv", "--name", "shop", "--force").exit_code == 0
    assert path.read_text().startswith("# Written by `dayahead inspect`")


def test_what_is_not_known_is_said_apart(shop):
    row = "s{visit},{item},{when:%m/%d/%Y %H:%M:%S}"
    (shop / "log.csv").write_text(log_lines(header="session,item,time", row=row))
    done = run("log.csv", "--dry-run")
    checks = [line for line in done.output.splitlines() if line.startswith("Check ")]
    assert [line.split(":")[0] for line in checks] == ["Check time.format", "Check time.zone"]
    assert not (shop / "datasets").exists()
