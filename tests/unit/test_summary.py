"""The summary at the end of a run: its AOD beside the baselines', the report, the next command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import DataError
from dayahead.metrics.metrics import mean
from dayahead.outputs.tables import read_windows
from dayahead.summary import summarize_run
from dayahead.train.compared_baselines import train_baselines
from support.tiny_settings import tiny_params, tiny_study, train_study
from support.window_folders import markov_days, write_window_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    write_window_folder(tmp_path / "data" / "windows", markov_days(4, 30, 15))
    return tmp_path


def aod_of(folder, name):
    return mean([row.metrics[name] for row in read_windows(folder / "windows.csv", [1, 5])])


def test_baselines_stand_beside_the_run(project):
    for architecture in ("popularity", "transitions", "gru"):
        sections = {"model": {"architecture": architecture}}
        folder = project if architecture == "gru" else project / architecture
        train_study(project / "data" / "windows", folder, sections)
    train_baselines(tiny_study(project / "data" / "windows", project, sections))
    text = summarize_run(tiny_params(sections), project)
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    column = lines["AOD"].index("ndcg_at_5")
    for architecture in ("popularity", "transitions", "gru"):
        folder = project if architecture == "gru" else project / architecture
        expected = f"{aod_of(folder / 'results', 'ndcg_at_5'):.4f}"
        assert lines[architecture][column] == expected
    assert f"3 windows evaluated. Report: {project}/results/report.html" in text
    assert "Next: dvc exp run --temp" in text


def test_results_without_baselines_are_refused(project):
    sections = {"model": {"architecture": "popularity"}}
    train_study(project / "data" / "windows", project, sections)
    with pytest.raises(DataError, match=r"own\.csv: expected windows .*`dvc repro -f train`"):
        summarize_run(tiny_params(sections), project)


def test_the_command_works_in_any_folder_of_the_project(monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr("dayahead.summary.summarize_run", lambda _, root: f"of {root}")
    assert CliRunner().invoke(app, ["summary"]).stdout == f"of {ROOT}\n"
