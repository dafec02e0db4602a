"""`dayahead forget`: what it prints, and how it ends."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import write_parquet
from support.dvc_remotes import dvc_project
from support.project_copy import ROOT, change_params
from support.user_datasets import dataset_of_users

TEXT = dataset_of_users(["https://me:secret@shop.example.org/clicks.csv"])


@pytest.fixture(autouse=True)
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    root = dvc_project(tmp_path / "shop", store=str(tmp_path / "store"))
    monkeypatch.setenv("DVC_ROOT", str(root))
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "params.yaml", root / "params.yaml")
    change_params(root, {"dataset": "shop"})
    (root / "datasets").mkdir()
    (root / "datasets/shop.yaml").write_text(TEXT)
    rows = {"user_id": ["4711", "\u00c5sa", "4711", None], "session_id": ["a", "b", "a", "c"]}
    write_parquet(root / "data/raw/events-00000.parquet", pa.table(rows))
    write_parquet(root / "results/ranks/2026-01-02.parquet", pa.table({"session_id": ["b", "a"]}))
    (root / ".dayahead/downloads/x").mkdir(parents=True)
    return root


def invoke(*words):
    return CliRunner().invoke(app, ["forget", *words])


def test_what_goes_is_listed_and_what_stays_is_named(shop):
    result = invoke("4711", "\u00c5sa")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[:2] == ["4711: 2 rows that name the user", "\u00c5sa: 1 rows that name the user"]
    assert [line.split() for line in lines[3:5]] == [
        ["data/raw", "1", "3"], ["results/ranks", "1", "2"]
    ]  # fmt: skip
    for word in (
        "1 files or folders that cannot be searched",
        "shop.example.org",
        "store",
        "dvc gc",
        "mlflow gc",
    ):
        assert word in result.output
    assert "secret" not in result.output
    assert not [path for path in ("data/raw", "results/ranks") if (shop / path).exists()]
    assert not (shop / ".dayahead/downloads/x").exists()


def test_a_dry_run_removes_nothing(shop):
    assert "would be removed" in invoke("4711", "--dry-run").output
    assert (shop / "data/raw").exists()
    assert (shop / ".dayahead/downloads/x").exists()
    assert (shop / "datasets/shop.yaml").read_text() == TEXT


def test_ids_come_from_a_file_too(shop, tmp_path):
    Path("gone.txt").write_bytes(b"\xef\xbb\xbf4711\r\n\r\n  \xc3\x85sa \n4711\n")
    result = invoke("--file", "gone.txt")
    assert result.exit_code == 0, result.output
    assert result.output.count("rows that name the user") == 2


def test_a_user_who_is_not_found_is_an_error_and_the_others_go(shop):
    result = invoke("4711", "\u00c5SA")
    assert isinstance(result.exception, DataError)
    assert "no row found of \u00c5SA: compare" in str(result.exception)
    assert not (shop / "data/raw").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected ids of users"),
        (("--file", "nowhere.txt"), "nowhere.txt: expected a text file in UTF-8"),
        (("--file", "latin.txt"), "latin.txt: expected a text file in UTF-8"),
    ],
)
def test_a_wrong_call_is_named(words, message):
    Path("latin.txt").write_bytes(b"\xc5sa\n")
    result = invoke(*words)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
