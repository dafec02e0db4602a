"""The public names of `dayahead`: their examples, what they refuse, and how fast they import."""

import doctest
import subprocess
import sys

import pytest

import dayahead
from dayahead import compare, evaluate, load_model
from dayahead.core.errors import ComparisonError, ConfigError, DataError, ModelFileError
from dayahead.outputs.tables import read_windows
from support.results_folders import write_results
from support.tiny_settings import each_task, train_study
from support.window_folders import day, markov_days, write_window_folder

DAYS = [
    [[12, 11], [12, 13]],
    [[11, 13], [11, 12], [13, 12], [12, 11]],
    [[11, 13], [11, 13], [13, 12], [12, 13]],
]
"""12 occurs most often on day 0; the test sessions of a day are its second and fourth."""
SECTIONS = {"model": {"architecture": "popularity"}, "training": {"fit_last": False}}
FLOATS = 1e-6


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a model of day 0, three days of windows, and results of two settings."""
    root = tmp_path_factory.mktemp("project")
    windows = write_window_folder(root / "data" / "windows", DAYS)
    train_study(windows, root, SECTIONS, last=day(1))
    days = [day(number) for number in range(1, 7)]
    write_results(root / "results-a", {name: [2, 2] for name in days})
    write_results(root / "results-b", {name: [1, 2] for name in days})
    return root


@pytest.mark.parametrize("name", dayahead.__all__)
def test_the_example_of_each_name_runs(project, monkeypatch, name):
    monkeypatch.chdir(project)
    function = getattr(dayahead, name)
    [test] = doctest.DocTestFinder().find(function, name, globs={name: function})
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_importing_the_package_imports_nothing_that_takes_seconds():
    code = "import sys, dayahead; from dayahead import load_model, evaluate, compare; "
    code += "print([*{'torch', 'pandas', 'pyarrow', 'mlflow', 'dvc', 'scipy'} & {*sys.modules}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_names_stay_what_they_are_after_use(project):
    """A room called as one of them would replace it when it is imported."""
    compare(project / "results-a", [project / "results-b"])
    evaluate(project / "models", project / "data" / "windows")
    found = [getattr(dayahead, name).__module__ for name in dayahead.__all__]
    assert found == ["dayahead"] * 3


@each_task
def test_a_saved_model_has_the_metrics_of_the_run_that_saved_it(tmp_path, architecture, task):
    days = markov_days(n_days=3, sessions_per_day=20, n_items=15)
    windows = write_window_folder(tmp_path / "windows", days, features=True)
    sections = {
        "model": {"architecture": architecture, "features": ("category", "price")},
        "task": {"name": task},
        "training": {"fit_last": False},
        "evaluation": {"split": "valid"},
    }
    out = train_study(windows, tmp_path / "out", sections)
    last = read_windows(out / "results" / "windows.csv", [1, 5])[-1]
    found = evaluate(out / "models", windows, last.window, split="valid", cutoffs=[1, 5])
    assert found == pytest.approx(last.metrics, abs=FLOATS)


def test_the_window_after_the_last_one_fitted_is_the_default(project):
    windows = project / "data" / "windows"
    model = load_model(str(project / "models"))
    assert evaluate(model, windows) == evaluate(model, windows, day(1))
    # Day 2: targets 13 and 13, of which 11 and 13 have one event and 12 two: rank 3, for ties.
    assert evaluate(model, windows, day(2), cutoffs=[2, 3])["recall_at_2"] == 0
    assert evaluate(model, windows, day(2), cutoffs=[2, 3])["recall_at_3"] == 1


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (day(0), f"window {day(0)}: expected one after {day(0)}, .*: {day(1)}, {day(2)}"),
        ("2030-01-01", "window 2030-01-01: expected one after"),
    ],
)
def test_a_window_that_the_model_may_have_seen_is_refused(project, window, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(project / "models", project / "data" / "windows", window)


def test_a_model_of_the_last_window_has_nothing_to_be_evaluated_on(tmp_path):
    windows = write_window_folder(tmp_path / "windows", DAYS)
    out = train_study(windows, tmp_path / "out", {"model": {"architecture": "popularity"}})
    with pytest.raises(ConfigError, match=r"no later window is kept.*fit_last: false"):
        evaluate(out / "models", windows)


def test_a_window_without_sessions_is_refused(tmp_path, project):
    windows = write_window_folder(tmp_path / "windows", [DAYS[0], DAYS[1][:1]])
    with pytest.raises(DataError, match="has no sessions to evaluate on"):
        evaluate(project / "models", windows)


def test_windows_of_other_data_are_refused(tmp_path, project):
    other = write_window_folder(tmp_path / "other", [[[12, 99], [12, 13]], *DAYS[1:]])
    with pytest.raises(ModelFileError, match="another vocabulary of item_id"):
        evaluate(project / "models", other)


def test_windows_of_other_statistics_are_refused(tmp_path, project):
    other = write_window_folder(tmp_path / "other", DAYS, max_length=9)
    with pytest.raises(ModelFileError, match="fitted to other statistics"):
        evaluate(project / "models", other)


def test_a_run_is_named_once(project):
    with pytest.raises(ComparisonError, match="expected different runs"):
        compare([], project / "results-b")
