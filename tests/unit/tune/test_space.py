"""Search spaces: what is tried for each setting, and which files are refused."""

from pathlib import Path

import optuna
import pytest

from dayahead.config.loading import read_yaml, validated
from dayahead.config.params import Params
from dayahead.config.sections import flattened, merged
from dayahead.core.errors import ConfigError
from dayahead.presets import search_names
from dayahead.tune.space import (
    SearchFile,
    checked_space,
    read_search,
)

ROOT = Path(__file__).parents[3]
BASE = read_yaml(ROOT / "params.yaml")
SEARCHES = search_names(ROOT / "searches")


def space_of(space, **base):
    search = validated(SearchFile, {"description": "x", "space": space}, "mine")
    return checked_space(search, merged(BASE, base), "mine")


def tried(space, n_trials=60, **base):
    """What a study tries, trial after trial."""
    checked = space_of(space, **base)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [checked.suggest(study.ask()) for _ in range(n_trials)]


def values(key, space):
    return {settings[key] for settings in tried({key: space})}


def test_choices_are_tried_as_they_are():
    assert values("model.n_head", {"choices": [1, 2, 4]}) == {1, 2, 4}
    assert values("model.item_embedding_dim", {"choices": [None, 64]}) == {None, 64}


def test_whole_numbers_come_in_steps_with_both_ends():
    found = values("model.d_model", {"low": 64, "high": 320, "step": 64})
    assert found == {64, 128, 192, 256, 320}
    assert {type(value) for value in found} == {int}


def test_steps_of_floats_have_no_rounding_errors():
    found = values("model.dropout", {"low": 0.0, "high": 0.5, "step": 0.1})
    assert found == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


def test_small_and_large_rates_are_equally_likely():
    key, space = "training.learning_rate", {"low": 1e-4, "high": 1e-2, "log": True}
    found = [settings[key] for settings in tried({key: space}, 200)]
    assert all(1e-4 <= value <= 1e-2 for value in found)
    assert 70 < sum(value < 1e-3 for value in found) < 130
    assert all(value == float(f"{value:.6g}") for value in found)


def test_a_setting_is_tried_only_where_its_conditions_hold():
    space = {
        "task.name": {"choices": ["clm", "mlm", "rtd"]},
        "task.mlm_probability": {"low": 0.2, "high": 0.4, "when": {"task.name": ["mlm", "rtd"]}},
    }
    found = tried(space)
    assert {each["task.name"] for each in found} == {"clm", "mlm", "rtd"}
    for settings in found:
        assert ("task.mlm_probability" in settings) == (settings["task.name"] != "clm")


def test_a_condition_may_be_on_a_setting_that_all_trials_share():
    space = {"task.plm_max_span": {"low": 2, "high": 6, "when": {"task.name": "plm"}}}
    assert tried(space, 1) == [{}]
    assert [*tried(space, 1, **{"task.name": "plm"})[0]] == ["task.plm_max_span"]


def test_interrupted_trials_have_the_values_that_they_had():
    checked = space_of({"model.n_head": {"choices": [1, 2, 4, 8]}})
    study = optuna.create_study()
    trial = study.ask()
    before = checked.suggest(trial)
    again = optuna.trial.Trial(study, trial._trial_id)
    assert checked.suggest(again) == before


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"model.d_modell": {"choices": [1]}}, r"d_modell: no such.*did you mean model.d_model"),
        ({"model.nothing": {"choices": [1]}}, r"mine: space.model.nothing: no such setting"),
        (
            {"window.last": {"choices": ["2026-01-04"]}},
            "a search changes the sections model, task, ",
        ),
        (
            {"evaluation.split": {"choices": ["valid"]}},
            "a search changes the sections model, task, ",
        ),
        ({"dataset": {"choices": ["g1"]}}, "a search changes the sections model, task, "),
        ({"nightly.windows": {"choices": [7]}}, "a search changes the sections model, task, "),
        ({"model.n_layer": {"low": 0.5, "high": 2.0}}, r"space.model.n_layer: .*integer"),
        ({"model.n_layer": {"choices": [2, 0]}}, r"n_layer: .*greater than or equal to 1"),
        ({"model.dropout": {"low": 0.0, "high": 1.0}}, r"model.dropout: .*less than 1"),
        ({"task.name": {"choices": ["clm", "mlmm"]}}, r"task.name: .*'mlmm'"),
        (
            {"model.n_layer": {"low": 1, "high": 2, "when": {"task.nam": "clm"}}},
            r"n_layer.when.task.nam: no such setting; did you mean task.name",
        ),
        (
            {"model.n_layer": {"low": 1, "high": 2, "when": {"task.name": "mlmm"}}},
            r"n_layer.when.task.name: .*'mlmm'",
        ),
        (
            {
                "model.n_layer": {"low": 1, "high": 2, "when": {"task.name": "clm"}},
                "task.name": {"choices": ["clm"]},
            },
            r"n_layer.when.task.name: must come before model.n_layer",
        ),
    ],
)
def test_a_space_that_does_not_fit_the_settings_is_refused(space, message):
    with pytest.raises(ConfigError, match=message):
        space_of(space)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected either choices, or low and high"),
        ({"low": 1}, "expected either choices, or low and high"),
        ({"choices": [1], "low": 1, "high": 2}, "expected either choices, or low and high"),
        ({"choices": [1], "log": True}, "step and log go with low and high"),
        ({"choices": []}, "choices"),
        ({"low": 2, "high": 2}, r"low \(2\) must be below high \(2\)"),
        ({"low": 0, "high": 2, "log": True}, "low must be above 0"),
        ({"low": 1, "high": 4, "step": 2}, r"high - low must be a multiple of step \(2\)"),
        ({"low": 1, "high": 4, "step": 0}, "multiple of step"),
        ({"low": 1, "high": 4, "steps": 1}, "steps"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        space_of({"model.n_layer": values})


def test_all_errors_are_reported_at_once():
    with pytest.raises(ConfigError) as error:
        space_of({"model.x": {"choices": [1]}, "loss.y": {"choices": [1]}})
    assert len(str(error.value).splitlines()) == 2


def test_the_error_for_an_unknown_space_names_the_known():
    with pytest.raises(ConfigError, match=r"no such search space; expected .*transformers"):
        read_search("nothing", ROOT / "searches")


@pytest.mark.parametrize("name", SEARCHES)
def test_every_space_of_the_project_fits_its_settings(name):
    """Also at both ends of all values together: the rules over several settings."""
    search = read_search(name, ROOT / "searches")
    base = merged(BASE, flattened(search.settings))
    space = checked_space(search, base, name)
    for index in (0, -1):
        settings = {key: each.examples[index] for key, each in space.values.items()}
        validated(Params, merged(base, settings), name)


def test_the_spaces_of_the_paper_have_its_bounds():
    space = read_search("transformers", ROOT / "searches").space
    bounds = {key: (each.low, each.high, each.step) for key, each in space.items()}
    assert bounds["model.d_model"] == (64, 448, 64)
    assert bounds["model.item_init_std"] == (0.01, 0.15, 0.02)
    assert bounds["task.plm_max_span"] == (2, 6, None)
    assert bounds["task.plm_probability"] == (0.1, 0.7, 0.1)
    assert space["training.learning_rate"].log
    assert space["task.rtd_discriminator_weight"].choices == (1, 10, 20, 30, 40, 50)
