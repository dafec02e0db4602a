"""`dayahead nightly` and `dayahead rollback`: exit status, the last line, refusals."""

import json
import re
import shutil
import subprocess
from datetime import datetime

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands import nightly as verb
from dayahead.config.loading import read_yaml
from dayahead.core.errors import ConfigError
from support.pretended_nights import after_nights, pretended_night, write_params

CHALLENGER = {"challengers": {"other": {"training": {"epochs": 2}}}, "horizon": 5}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    levels = {2: 1}
    for name in ("project_night", "project_served"):
        monkeypatch.setattr(verb, name, lambda: pretended_night(tmp_path, levels))
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
        for words in (["nightly"], ["nightly", "--promote", "x"], ["rollback"]):
            done = call(*words)
            assert done.exit_code == 75
            assert "at work" in done.stderr


@pytest.mark.long
def test_a_winner_waits_until_it_is_promoted(project):
    write_params(project, CHALLENGER)
    assert nights_until(project, 8) == [0, 0, 0, 0, 0, 10, 10]
    assert "other: won" in call("nightly", "--status").output
    done = call("nightly", "--promote", "other")
    assert done.exit_code == 0
    assert "other is the champion from the next night on" in done.output
    assert read_yaml(project / "params.yaml")["training"]["epochs"] == 2


@pytest.mark.slow
def test_with_commit_a_winner_is_promoted_and_nothing_else_committed(project):
    write_params(project, CHALLENGER)
    for words in ("init --quiet", "config user.name a", "config user.email a@b"):
        subprocess.run(["git", *words.split()], cwd=project, check=True)
    (project / "mine.txt").write_text("1")
    subprocess.run(["git", "add", "params.yaml", "mine.txt"], cwd=project, check=True)
    subprocess.run(["git", "commit", "--quiet", "-m", "first"], cwd=project, check=True)
    (project / "mine.txt").write_text("2")
    nights_until(project, 6)
    deliver(project, 7)
    done = call("nightly", "--commit", "--json")
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, outcome["outcome"], outcome["status"]) == (0, "published", 0)
    shown = subprocess.run(
        ["git", "show", "--stat", "--format=%s"], cwd=project, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert shown.startswith("nightly: promote other\n")
    assert "params.yaml" in shown
    assert "mine.txt" not in shown


@pytest.mark.long
def test_rollback_says_what_is_served(project):
    after_nights(project, 3)
    done = call("rollback", "--reason", "clicks fell")
    assert done.exit_code == 0
    assert "2026-01-03" in done.output
    assert "is withdrawn (clicks fell); 2026-01-02" in done.output
    assert "serving   2026-01-02" in call("nightly", "--status").output
    (project / "params.yaml").write_text("nights: {}\n")  # what is served does not depend on it
    assert "serving   2026-01-02" in call("nightly", "--status").output


@pytest.mark.long
def test_programs_read_the_status_as_json(project):
    empty = json.loads(call("nightly", "--status", "--json").stdout)
    nothing = dict.fromkeys(("serving", "since", "published", "previous", "decision", "quality"))
    assert empty == nothing | {"withdrawn": {}, "trials": []}
    write_params(project, CHALLENGER)
    nights_until(project, 4)
    current, previous = published(project)
    call("rollback", "--reason", "clicks fell")
    found = json.loads(call("nightly", "--status", "--json").stdout)
    served = found["serving"], found["published"], found["previous"]
    assert served == (previous, previous, current)
    assert datetime.fromisoformat(found["since"]).tzinfo
    assert found["withdrawn"] == {current: "clicks fell"}
    assert (found["quality"]["window"], found["quality"]["usual"]["windows"]) == ("2026-01-04", 2)
    decision = found["decision"]["window"], found["decision"]["outcome"]
    assert decision == ("2026-01-04", "published")
    assert found["trials"] == [{"challenger": "other", "from": "2026-01-02", "outcome": None}]


def test_status_names_what_is_served_since_when_and_what_was_withdrawn(project):
    after_nights(project, 4)
    current, previous = published(project)
    lines = status()
    assert re.fullmatch(
        rf"{current} since \d{{4}}-\d\d-\d\d \d\d:\d\d UTC, published for window 2026-01-04",
        lines["serving"],
    )
    assert re.fullmatch(
        r"2026-01-04 published: \d+ guards passed, \d not checked", lines["decision"]
    )
    assert re.match(r"NDCG@20 0\.\d{4} in 2026-01-04: \S+% ", lines["quality"])
    call("rollback", "--reason", "clicks fell")
    lines = status()
    assert lines["serving"].startswith(f"{previous} since 20")
    assert lines["serving"].endswith(
        f"UTC, by a rollback: {current} is withdrawn (clicks fell); {previous} is served again"
    )
    assert lines["withdrawn"] == f"{current}: clicks fell"
    assert lines["decision"] == "2026-01-04 published, and withdrawn since: clicks fell"
    assert "its model was rolled back: clicks fell" in call("nightly").output
    call("rollback")
    assert "withdrawn" not in status()
    assert "guards passed" in status()["decision"]


def test_status_says_what_is_not_as_the_history_has_it(project):
    after_nights(project, 4)
    current, previous = published(project)
    folder = project / "published"
    shutil.rmtree(folder / previous)
    assert status()["previous"] == f"{previous}, whose folder is gone"
    (folder / "mine").mkdir()
    (folder / "current").unlink()
    (folder / "current").symlink_to("mine")
    assert status()["serving"].endswith("which no decision of this history has published")
    assert status()["pending"] == f"{current}: the next night, or a rollback, serves it"
    (folder / "mine").rmdir()
    assert status()["serving"] == ("nothing: published/current links to mine, whose folder is gone")
    (folder / "current").unlink()
    assert status()["serving"] == "nothing"
    (folder / "current").mkdir()
    assert status()["serving"] == f"not known: {folder}/current is no link; remove or rename it"


def published(project):
    return [(project / "published" / link).readlink().name for link in ("current", "previous")]


def status():
    """Lines of --status by their first word."""
    lines = call("nightly", "--status").output.splitlines()
    return {line.split()[0]: line[10:] for line in lines}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--promote", "a", "--json"), "goes alone"),
        (("--status", "--commit"), "goes alone"),
        (("--promote", "a", "--status"), "goes alone"),
        (("--promote", "a", "--adopt"), "goes alone"),
        (("--dry-run", "--commit"), "leave out --commit"),
    ],
)
def test_options_that_do_not_go_together(project, words, message):
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, ["nightly", *words], catch_exceptions=False)


def test_a_folder_that_is_no_project_has_no_status(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no params\.yaml; run this in the project's folder"):
        CliRunner().invoke(app, ["nightly", "--status"], catch_exceptions=False)


def test_before_the_first_night_nothing_is_served(project):
    output = call("nightly", "--status").output
    assert "serving   nothing" in output
    assert "decision  none yet" in output
