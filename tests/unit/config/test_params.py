"""params.yaml: every fault at once, in words that lead to the cure."""

import copy
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, flat_settings, load_params
from dayahead.core.errors import ConfigError

OWN = Path(__file__).parents[3] / "params.yaml"


@pytest.fixture
def edited(tmp_path):
    """Write params.yaml with settings changed: edited({"model.d_model": 30})."""

    def write(changes) -> Path:
        values = copy.deepcopy(read_yaml(OWN))
        for key, value in changes.items():
            *sections, last = key.split(".")
            section = values
            for name in sections:
                section = section[name]
            section[last] = value
        path = tmp_path / "params.yaml"
        YAML(typ="safe").dump(values, path)
        return path

    return write


def faults(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        load_params(path)
    return str(refusal.value).splitlines()


def test_our_own_settings_are_read_as_they_stand():
    params = load_params(OWN)
    assert isinstance(params, Params)
    assert params.evaluation.cutoffs == tuple(read_yaml(OWN)["evaluation"]["cutoffs"])


def test_settings_spread_out_as_dvc_names_them(edited):
    path = edited({"model.features": ["price"]})
    flat = flat_settings(load_params(path))
    assert flat["dataset"] == "synthetic"
    assert flat["model.features"] == ("price",)
    assert flat["window.first"] is None
    wanted = {"dataset"} | {
        f"{section}.{key}"
        for section, values in read_yaml(path).items()
        if section not in {"dataset", "machine"}
        for key in values
    }
    assert set(flat) == wanted


def test_every_fault_is_listed_at_once(edited):
    found = faults(
        edited(
            {
                "model.d_model": -1,
                "model.n_heads": 4,
                "training.learning_rate": "fast",
                "evaluation.split": "train",
                "window.unit": None,
            }
        )
    )
    assert len(found) == 5
    for key, value in [
        ("model.d_model", "-1"),
        ("model.n_heads", "4"),
        ("training.learning_rate", "'fast'"),
        ("evaluation.split", "'train'"),
        ("window.unit", "None"),
    ]:
        [line] = [line for line in found if f" {key}:" in line]
        assert f"(got {value})" in line
        assert "params.yaml" in line


def test_a_missing_setting_is_named(edited):
    path = edited({})
    values = read_yaml(path)
    del values["loss"]["label_smoothing"]
    YAML(typ="safe").dump(values, path)
    [line] = faults(path)
    assert "loss.label_smoothing" in line


def test_all_candidates_want_the_full_catalogue(edited):
    [line] = faults(edited({"evaluation.candidates": "all"}))
    assert "set model.catalogue to full or evaluation.candidates to seen" in line
    assert load_params(edited({"evaluation.candidates": "all", "model.catalogue": "full"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training.epochs", 0),
        ("training.epochs", 1.5),
        ("training.epochs", True),
        ("training.seed", -1),
        ("training.max_grad_norm", 0),
        ("model.dropout", 1.0),
        ("model.decay", 1.1),
        ("task.mlm_probability", 0),
        ("loss.label_smoothing", 1),
        ("evaluation.cutoffs", []),
        ("evaluation.cutoffs", [0]),
        ("compute.processes", 0),
        ("compute.processes", "all"),
        ("dataset", "../elsewhere"),
        ("preprocess.fit_windows", 0),
    ],
)
def test_values_out_of_range_are_refused(edited, key, value):
    assert any(key in line for line in faults(edited({key: value})))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("", "top level"), ("[1, 2]", "top level"), ("a: [", "not readable as YAML")],
)
def test_what_is_no_mapping_is_refused(tmp_path, text, complaint):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert complaint in "\n".join(faults(path))


def test_no_file_is_refused(tmp_path):
    assert "no such file" in faults(tmp_path / "params.yaml")[0]


def test_numbers_are_read_as_dvc_reads_them(tmp_path):
    """PyYAML would read 1e-3 as text."""
    path = tmp_path / "params.yaml"
    path.write_text(OWN.read_text().replace("learning_rate: 0.002", "learning_rate: 1e-3"))
    assert load_params(path).training.learning_rate == 0.001
