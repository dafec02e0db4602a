"""A search from the command line: what is refused, what it writes; experiments are pretended."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.config.loading import read_yaml
from dayahead.core.errors import BusyError, ConfigError
from dayahead.presets import preset_options
from dayahead.tracking.store import Store
from dayahead.tune.experiment import hold

ROOT = Path(__file__).parents[3]
SPACE = """description: x
settings:
  model: {architecture: gpt2}
space:
  training.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
"""


class PretendedExperiment:
    def __init__(self, name, settings):
        self.value = settings.get("training.learning_rate", 0.0)

    def poll(self):
        return 0

    def values(self, metric):
        return [self.value, self.value]

    def stop(self):
        pass


class PretendedClone:
    """Its experiments end at once; holds what they share."""

    params: ClassVar = {}

    def __init__(self, root, folder, lock):
        self.folder = folder

    def prepare(self, params):
        self.folder.mkdir(parents=True, exist_ok=True)
        type(self).params = read_yaml(params)

    def start(self, name, settings, logs):
        return PretendedExperiment(name, settings)


@pytest.fixture
def project(tmp_path, monkeypatch, empty_database):
    for name in [*os.environ]:
        if name.startswith(("DVC_", "MLFLOW_TRACKING", "DAYAHEAD_ROOT")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("dayahead.tune.experiment.Clone", PretendedClone)
    monkeypatch.setattr("dayahead.tune.experiment.WAIT_SECONDS", 0)
    monkeypatch.setattr("dayahead.tune.study.Search.pause", 0)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copy(empty_database, tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "searches").mkdir()
    (tmp_path / "searches" / "mine.yaml").write_text(SPACE)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*options):
    return CliRunner().invoke(app, ["tune", *options], catch_exceptions=False)


@pytest.mark.slow
def test_the_best_settings_are_a_preset(project):
    result = tune("mine", "--trials", "5", "-Smodel.n_layer=1", "-S", "window.last=2026-01-06")
    assert result.exit_code == 0
    assert "study mine: 5 complete" in result.output
    assert "dayahead preset tuned/mine" in result.output
    options = preset_options("tuned/mine", project / "presets", project / "params.yaml")
    [rate] = [option.partition("=")[2] for option in options if "learning_rate" in option]
    assert options == ["-Smodel.architecture=gpt2", "-Smodel.n_layer=1",
                       f"-Straining.learning_rate={rate}"]  # fmt: skip
    assert f"{float(rate):.4f} with those of trial" in result.output
    assert "\n  # Trial " in (project / "presets/tuned.yaml").read_text()


@pytest.mark.long
def test_trials_are_evaluated_on_valid_and_waste_nothing(project):
    tune("mine", "--trials", "1", "-S", "window.last=2026-01-06")
    params = PretendedClone.params
    assert params["evaluation"]["split"] == "valid"
    assert params["training"]["fit_last"] is False
    assert params["tracking"]["log_model"] is False
    assert params["window"]["last"] == "2026-01-06"
    assert params["model"]["architecture"] == "gpt2"
    assert read_yaml(project / "params.yaml")["evaluation"]["split"] == "test"


@pytest.mark.slow
def test_a_search_goes_on_to_the_number_of_trials(project):
    tune("mine", "--trials", "2")
    assert "study mine: 4 complete" in tune("mine", "--trials", "4").output
    assert "study mine: 4 complete" in tune("mine", "--trials", "4").output
    assert "study other: 1 complete" in tune("mine", "--trials", "1", "--study", "other").output


@pytest.mark.slow
def test_the_study_is_a_run_of_mlflow(project):
    tune("mine", "--trials", "5")
    tune("mine", "--trials", "6")
    store = Store(project)
    experiment = store.experiment_id("dayahead")
    [run] = store.client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.runName"] == "mine"
    assert [run.data.tags[f"trial.{number}"] for number in range(6)] == [
        f"mine-{number}" for number in range(6)
    ]
    history = store.client.get_metric_history(run.info.run_id, "ndcg_at_20")
    assert [point.step for point in history] == [*range(6)]
    best = store.client.get_metric_history(run.info.run_id, "best")
    assert max(point.value for point in best) == max(point.value for point in history)
    assert run.data.params["space.training.learning_rate"] == "0.0001 to 0.01"


@pytest.mark.long
def test_runs_of_trials_are_nested_in_that_of_the_study(project):
    store = Store(project)
    tags = {"dvc.exp_name": "mine-0", "dvc.stage": "pipeline"}
    pipeline = store.client.create_run(store.experiment_id("dayahead"), tags=tags)
    tune("mine", "--trials", "1")
    [study] = store.client.search_runs(
        [store.experiment_id("dayahead")], "tags.`dvc.stage` = 'search'"
    )
    found = store.client.get_run(pipeline.info.run_id)
    assert found.data.tags["mlflow.parentRunId"] == study.info.run_id


def test_without_a_name_the_spaces_are_listed(project):
    assert tune().output == "mine\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nothing"], "no such search space; expected a file, or one of mine"),
        (["mine", "--study", "a/b"], "--study a/b: expected letters"),
        (["mine", "--metric", "ndcg_at_7"], "--metric ndcg_at_7: expected one of recall_at_10"),
        (["mine", "-S", "evaluation.split=all"], "a search evaluates on valid alone"),
        (["mine", "-S", "model.n_layers=1"], "n_layers"),
        (["mine", "-S", "model.n_layer=0"], "model.n_layer: .*greater than"),
        (["mine", "-S", "model.n_layer"], "Invalid `--set-param`"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_trial(project, options, message):
    with pytest.raises(ConfigError, match=message):
        tune(*options)
    assert not (project / "presets").exists()


def test_a_setting_that_params_yaml_lacks_is_named(project):
    params = project / "params.yaml"
    params.write_text(re.sub(r"(?m)^  split: .*\n", "", params.read_text()))
    with pytest.raises(ConfigError, match=r"params\.yaml: evaluation\.split: "):
        tune("mine")


def test_a_study_is_worked_on_by_one_process(project):
    lock = hold(project / ".dayahead" / "tune" / "mine.lock")
    with pytest.raises(BusyError, match="another process works on the study mine"):
        tune("mine")
    os.close(lock)


@pytest.mark.long
def test_files_that_no_trial_sees_are_named(project, caplog):
    (project / "datasets").mkdir()
    (project / "datasets" / "mine.yaml").touch()
    with caplog.at_level("WARNING"):
        tune("mine", "--trials", "1")
    [warning] = [record.getMessage() for record in caplog.records if "commit" in record.message]
    assert "datasets/" in warning
