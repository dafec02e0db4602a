"""The summary at the end of a run: its AOD beside the baselines', the report, the next command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.aggregate.summary import RunSummary, experiment_summary, summarize_run
from dayahead.core.errors import DataError
from dayahead.metrics.metrics import mean
from dayahead.outputs.tables import baseline_path, read_windows
from dayahead.train.compared_baselines import train_baselines
from support.results_folders import CUTOFFS, DAYS, write_results
from support.tiny_settings import tiny_params, tiny_study, train_study
from support.window_folders import markov_days, write_window_folder

ROOT = Path(__file__).parents[3]


def aod_of(folder, name):
    return mean([row.metrics[name] for row in read_windows(folder / "windows.csv", [1, 5])])


@pytest.mark.long
def test_baselines_stand_beside_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    windows = write_window_folder(tmp_path / "windows", markov_days(4, 30, 15))
    for architecture in ("popularity", "transitions", "gru"):
        sections = {"model": {"architecture": architecture}}
        folder = tmp_path if architecture == "gru" else tmp_path / architecture
        train_study(windows, folder, sections)
    train_baselines(tiny_study(windows, tmp_path, sections))
    found = summarize_run(tiny_params(sections), tmp_path)
    text = found.text()
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    column = lines["AOD"].index("ndcg_at_5")
    for architecture in ("popularity", "transitions", "gru"):
        folder = tmp_path if architecture == "gru" else tmp_path / architecture
        expected = f"{aod_of(folder / 'results', 'ndcg_at_5'):.4f}"
        assert lines[architecture][column] == expected
    assert f"3 windows evaluated. Report: {tmp_path}/results/report.html" in text
    assert "Next: dvc exp run --temp" in text
    assert [*found.as_json()["aod"]] == ["gru", "popularity", "own", "transitions"]
    assert found.as_json()["aod"]["gru"]["ndcg_at_5"] == aod_of(tmp_path / "results", "ndcg_at_5")


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """A run of a baseline, in an experiment of DVC called `bold-name`."""
    write_results(tmp_path / "results", DAYS)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("DVC_EXP_NAME", "bold-name")
    sections = {"model": {"architecture": "popularity"}, "evaluation": {"cutoffs": [*CUTOFFS]}}
    return tiny_params(sections), tmp_path


def test_results_without_baselines_are_refused(experiment):
    _, project = experiment
    baseline_path(project / "results", "own").unlink()
    with pytest.raises(
        DataError, match=r"own\.csv: .*not there.*`dvc repro -f train`.*`dvc exp apply.*`dvc pull`"
    ):
        summarize_run(*experiment)


@pytest.fixture
def same_data(monkeypatch):
    """The last commit has results of the same data set."""
    monkeypatch.setattr("dayahead.aggregate.summary.committed_dataset", lambda _: "tiny")


@pytest.mark.usefixtures("same_data")
def test_an_experiment_ends_with_its_average_the_report_and_the_next_step(experiment):
    params, project = experiment
    text = experiment_summary(params, project)
    assert text.startswith(summarize_run(params, project).text().partition("Next")[0])
    assert "make experiments; dayahead compare HEAD bold-name; git add params.yaml" in text


def test_one_on_other_data_is_compared_with_nothing(experiment, monkeypatch):
    params, project = experiment
    text = experiment_summary(params, project)
    commit = "git add params.yaml dvc.lock datasets; git commit"
    assert f"Next: {commit}; dvc exp run --temp -n small" in text
    monkeypatch.setenv("DVC_ROOT", "/projects/shop")
    assert experiment_summary(params, project).endswith(f"dvc exp apply bold-name; {commit}")


@pytest.mark.usefixtures("same_data")
def test_one_in_a_copy_says_how_its_report_is_had(experiment, monkeypatch):
    params, copy = experiment
    monkeypatch.setenv("DVC_ROOT", "/projects/shop")
    text = experiment_summary(params, copy)
    assert "Report: after dvc exp apply bold-name, /projects/shop/results/report.html\n" in text
    assert str(copy) not in text
    assert text.endswith("Next: make experiments; dayahead compare HEAD bold-name")


def test_a_stage_outside_of_an_experiment_has_no_summary(experiment, monkeypatch):
    monkeypatch.delenv("DVC_EXP_NAME")
    assert experiment_summary(*experiment) is None


SUMMARY = RunSummary({"gru": {"ndcg_at_5": 0.25}}, 3, Path("r.html"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], SUMMARY.text()),
        (["--json"], '{"windows": 3, "aod": {"gru": {"ndcg_at_5": 0.25}}, "report": "r.html"}'),
    ],
)
def test_the_command_works_in_any_folder_of_the_project(monkeypatch, options, expected):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(ROOT / "docs")
    roots = []

    def summarize(_, root):
        roots.append(root)
        return SUMMARY

    monkeypatch.setattr("dayahead.aggregate.summary.summarize_run", summarize)
    assert CliRunner().invoke(app, ["summary", *options]).stdout == f"{expected}\n"
    assert roots == [ROOT]
