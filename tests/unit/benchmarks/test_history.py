"""The history of figures: what is kept, and what a later run is compared with."""

import json

import pytest

import history
from history import Figure, entries, record

ONE = {"threads": 2}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def printed_of(capsys, path, value, unit="sessions/s", settings=ONE, benchmark="b"):
    """The lines of a run with one figure."""
    record(benchmark, settings, {"training": Figure(value, unit)}, path)
    return capsys.readouterr().out.splitlines()


def test_an_entry_says_what_was_measured_where_and_of_which_commit(path, monkeypatch):
    monkeypatch.setattr(history, "commit", lambda: "abc1234+")
    record("b", ONE, {"training": Figure(2.5, "x", 2.0, 3.0)}, path)
    (entry,) = map(json.loads, path.read_text().splitlines())
    assert (entry["benchmark"], entry["settings"], entry["commit"]) == ("b", ONE, "abc1234+")
    assert "cores" in entry["machine"]
    assert entry["figures"]["training"] == {"value": 2.5, "unit": "x", "least": 2.0, "most": 3.0}


def test_a_change_is_that_from_the_last_run(path, capsys):
    assert "first figures" in printed_of(capsys, path, 4_000.0)[0]
    printed_of(capsys, path, 2_000.0)
    (since, change) = printed_of(capsys, path, 1_800.0)
    assert f"since {entries(path)[1]['commit']} of {entries(path)[1]['date'][:10]}" in since
    assert change == "  training: 2,000 -> 1,800 sessions/s, 10.0% slower"
    assert [entry["figures"]["training"]["value"] for entry in entries(path)] == [4e3, 2e3, 1.8e3]


def test_only_like_is_compared_with_like(path, capsys, monkeypatch):
    printed_of(capsys, path, 1.0)
    assert "first" in printed_of(capsys, path, 1.0, settings={"threads": 1})[0]
    assert "first" in printed_of(capsys, path, 1.0, benchmark="c")[0]
    monkeypatch.setattr(history, "machine", lambda: "another")
    assert "first" in printed_of(capsys, path, 1.0)[0]


def test_a_broken_line_is_named(path, capsys):
    printed_of(capsys, path, 1.0)
    with path.open("a") as file:
        file.write('{"benchmark": "b", "mach\n')
    with pytest.raises(ValueError, match=r"history.jsonl, line 2: expected a JSON object.*delete"):
        printed_of(capsys, path, 1.0)
