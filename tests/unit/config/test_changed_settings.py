"""Changed settings that a model does not read are named; every preset changes only what is read."""

from pathlib import Path

import pytest

from dayahead.config.changed_settings import DEFAULTS, unread_settings
from dayahead.config.loading import read_yaml
from dayahead.config.params import checked_params
from dayahead.config.sections import merged
from dayahead.presets import preset_names, preset_settings
from dayahead.train.checks import warn_of_unread_settings

PRESETS = Path(__file__).parents[3] / "presets"


def params(**changes):
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return checked_params(merged(read_yaml(DEFAULTS), changes), "params.yaml")


@pytest.mark.parametrize(
    ("changes", "unread"),
    [
        ({}, []),
        ({"neighbours__k": 7, "training__epochs": 9}, ["neighbours.k"]),
        ({"model__architecture": "stan", "neighbours__k": 7, "memory__fade": 0.1}, ["memory.fade"]),
        ({"model__architecture": "vstan", "neighbours__position_weight": "log"},
         ["neighbours.position_weight"]),
        ({"model__network": "none", "loss__temperature": 0.2, "evaluation__split": "valid"},
         ["loss.temperature"]),
        ({"model__architecture": "gpt2", "training__momentum": 0.5}, ["training.momentum"]),
        ({"model__config": {"layer_norm_epsilon": 1e-3}, "training__precision": "float32"}, []),
    ],
)  # fmt: skip
def test_unread_are_changed_settings_of_other_models(changes, unread):
    assert unread_settings(params(**changes)) == unread


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_a_preset_changes_only_what_its_model_reads(name):
    changes = preset_settings(name, PRESETS)
    assert unread_settings(checked_params(merged(read_yaml(DEFAULTS), changes), name)) == []


def test_train_says_so_in_one_line(caplog):
    warn_of_unread_settings(params())
    assert not caplog.records
    warn_of_unread_settings(params(model__architecture="own", model__decay=0.2, memory__reach=3))
    assert caplog.messages == [
        "train: without effect with model.architecture=own and the other settings: "
        "model.decay, memory.reach"
    ]
