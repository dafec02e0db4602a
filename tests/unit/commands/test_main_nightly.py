"""`dayahead nightly`: exit status, the last line, refusals."""

import json

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands import nightly as verb
from dayahead.core.errors import ConfigError
from support.pretended_nights import after_nights, pretended_night


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    for name in ("project_night", "project_served"):
        monkeypatch.setattr(verb, name, lambda: pretended_night(tmp_path))
    return tmp_path


def deliver(root, n_days, odd=None):
    pretended_night(root).pipeline.deliver_days(n_days, odd)


def call(*words):
    return CliRunner().invoke(app, [*words])


def nights_until(root, n_days):
    """Exit status of each night."""
    found = []
    for number in range(2, n_days + 1):
        deliver(root, number)
        found.append(call("nightly").exit_code)
    return found


@pytest.mark.long
def test_the_exit_status_says_how_the_night_ended(project):
    assert nights_until(project, 4) == [0, 0, 0]
    assert call("nightly").exit_code == 0
    deliver(project, 5, {4: {"shift": 1000}})
    refused = call("nightly")
    assert refused.exit_code == 4
    assert refused.output.startswith("refused: ")


def test_the_last_line_is_json_where_it_is_asked_for(project):
    nights_until(project, 2)
    deliver(project, 3)
    done = call("nightly", "--json")
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (outcome["outcome"], outcome["status"]) == ("published", 0)
    assert outcome["current"].startswith("2026-01-03-")


def test_a_night_beside_another_is_tried_again_later(project):
    deliver(project, 2)
    with pretended_night(project).alone():
        for words in (["nightly"], ["nightly", "--rollback"]):
            done = call(*words)
            assert done.exit_code == 75
            assert "at work" in done.stderr


def test_a_folder_that_is_no_project_has_no_status(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no params\.yaml; run this in the project's folder"):
        CliRunner().invoke(app, ["nightly", "--status"], catch_exceptions=False)


def test_before_the_first_night_nothing_is_served(project):
    assert call("nightly", "--status").output.splitlines() == [
        "serving nothing",
        "previous nothing",
    ]


@pytest.mark.long
def test_status_prints_what_is_served_and_the_newest_decisions(project):
    after_nights(project, 4)
    done = call("nightly", "--rollback", "--reason", "clicks fell")
    assert done.exit_code == 0
    assert "is withdrawn (clicks fell); 2026-01-03" in done.output
    (project / "params.yaml").write_text("nights: {}\n")  # what is served does not depend on it
    serving, previous, *lines = call("nightly", "--status").output.splitlines()
    assert serving.startswith("serving 2026-01-03-")
    assert previous.startswith("previous 2026-01-04-")
    assert [line[18:45].split() for line in lines[:3]] == [
        [f"2026-01-0{number}", "published"] for number in (2, 3, 4)
    ]
    assert "guards passed" in lines[0]
    assert "rolled back" in lines[3]


@pytest.mark.parametrize("words", [("--status", "--dry-run"), ("--rollback", "--status")])
def test_options_that_do_not_go_together(project, words):
    with pytest.raises(ConfigError, match="at most one of"):
        CliRunner().invoke(app, ["nightly", *words], catch_exceptions=False)
