"""Files of studies: which runs they plan, and every validation error."""

import re
import shutil

import pytest

from dayahead.core.errors import ConfigError
from dayahead.studies.file import planned_runs, study_path
from support.project_copy import ROOT

STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
ROWS = "rows: {Own: {settings: {model: {architecture: own}}}, Memory: {}}\n"


@pytest.fixture
def project(tmp_path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "presets" / "x").mkdir(parents=True)
    (tmp_path / "presets" / "x" / "gru.yaml").write_text(
        "model: {architecture: gru, n_layer: 3, dropout: 0.5}\ntraining: {epochs: 7}\n"
    )
    (tmp_path / "studies").mkdir()
    return tmp_path


def planned(project, text, name="mine"):
    path = project / "studies" / f"{name}.yaml"
    path.write_text(f"description: x\n{text}")
    return planned_runs(path, project)


def test_a_seed_of_all_rows_comes_before_the_next(project):
    rows = "rows: {B row (2): {}, A: {seeds: [7]}}\n"
    runs = planned(project, f"seeds: [3, 1]\n{rows}")
    assert [(str(run), run.experiment) for run in runs] == [
        ("B row (2), seed 3", "mine-b-row-2-3"),
        ("A, seed 7", "mine-a-7"),
        ("B row (2), seed 1", "mine-b-row-2-1"),
    ]
    assert [run.changed for run in runs] == [{"training.seed": seed} for seed in (3, 7, 1)]
    assert [run.seed for run in planned(project, ROWS)] == [1, 1, 2, 2, 3, 3]


def test_a_row_goes_before_the_study_and_the_study_before_presets(project):
    [run] = planned(
        project,
        "seeds: [1]\n"
        "settings: {model: {n_layer: 2, d_model: 16, n_head: 2}, training: {epochs: 1}}\n"
        "rows: {GRU: {preset: x/gru, settings: {model: {d_model: 8}}}}\n",
    )
    expected = {"architecture": "gru", "n_layer": 2, "dropout": 0.5, "d_model": 8, "n_head": 2}
    changed = {f"model.{key}": value for key, value in expected.items()}
    assert run.changed == changed | {"training.epochs": 1, "training.seed": 1}
    assert run.settings.items() >= run.changed.items()
    assert run.settings["dataset"] == "synthetic"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: {}\n", r"mine.yaml: rows: "),
        ("rows: {A: null}\n", r"mine.yaml: rows.A: "),
        (f"{ROWS}row: 3\n", "row: .*did you mean rows"),
        (f"{ROWS}seeds: []\n", "seeds: "),
        (f"{ROWS}seeds: [1, -1]\n", "seeds.1: "),
        (f"{ROWS}seeds: [1, 2, 1]\n", "rows.Own: seeds: 1, 2, 1: name each once"),
        ("rows: {A: {preset: x/lstm}}\n", "lstm.yaml: no such preset; expected one of x/gru"),
        ("rows: {A: {settings: {model: {n_layers: 1}}}}\n", r"rows.A: model.n_layers: .*n_layer"),
        ("rows: {A: {settings: {model: {n_layer: 0}}}}\n", "rows.A: model.n_layer: "),
        ("rows: {A: {settings: {training: {seed: 1}}}}\n", "rows.A: training.seed is set by seeds"),
        (
            "rows: {A: {settings: {memory: {end_to_end: true}, model: {network: none}}}}\n",
            "rows.A: memory.end_to_end fits the network",
        ),
        (
            "rows: {A (1): {}, a-1: {}}\n",
            r"rows A \(1\) and a-1 would have the same experiments, m",
        ),
        ("rows: {'+': {}}\n", "expected a name with a letter or digit, without ="),
        ("rows: {a=b: {}}\n", "expected a name with a letter or digit, without ="),
        (
            "rows: {A: {}, B: {settings: {evaluation: {split: valid}}}}\n",
            "rows.B: evaluation.split is valid, and test in A; one table needs the same targets",
        ),
        (
            "rows: {A: {}, B: {settings: "
            "{events: {targets: [cart]}, preprocess: {fit_windows: 3}}}}\n",
            r"preprocess.fit_windows is 3, and 1 in A; events.targets is .*cart.*, and null in A",
        ),
        (
            "rows: {A: {}, B: {settings: {evaluation: {split: valid}, "
            "window: {overrun: keep, last: '2026-01-05'}}}}\n",
            "rows.B: window.last is 2026-01-05, and null in A; window.overrun is keep, and cut in "
            "A; evaluation.split is valid, and test in A; .*: set window.last, window.overrun, "
            "evaluation.split in settings of the study, which override those of presets",
        ),
    ],
)
def test_what_is_no_study_is_refused(project, text, message):
    with pytest.raises(ConfigError, match=message):
        planned(project, text)


def test_a_study_is_a_name_or_a_path(project):
    folder = project / "studies"
    planned(project, ROWS)
    planned(project, ROWS, "other study")
    assert study_path("mine", folder) == folder / "mine.yaml"
    assert study_path(str(folder / "mine.yaml"), project) == folder / "mine.yaml"
    with pytest.raises(ConfigError, match=r"mina.yaml: no such study; did you mean mine\?"):
        study_path("mina", folder)
    with pytest.raises(ConfigError, match="no such study; expected a file, or one of mine, other"):
        study_path("x.yaml", folder)
    with pytest.raises(ConfigError, match="its name is that of experiments"):
        study_path("other study", folder)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_that_come_with_dayahead_fit_the_settings(path):
    runs = planned_runs(path, ROOT)
    assert len(runs) == len({run.experiment for run in runs}) > 2
    assert len({run.settings["dataset"] for run in runs}) == 1


def test_the_study_of_the_documentation_is_one(tmp_path):
    page = (ROOT / "docs" / "tables.md").read_text()
    [text] = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    runs = planned_runs(path, ROOT)
    assert {run.row: run.settings["dataset"] for run in runs} == dict.fromkeys(
        ("STAN", "GRU4Rec", "Memory"), "rees46_head"
    )
