"""Names of architectures: all that can be built are known, others are refused at once."""

import re

import pytest
from transformers import CONFIG_MAPPING

from dayahead.config.architectures import RECIPES, known_architecture, known_network
from dayahead.config.loading import read_yaml
from dayahead.config.params import checked_params
from dayahead.core.errors import ConfigError
from dayahead.presets import preset_names
from support.backbones import NAMED, OTHER_TRANSFORMERS
from support.project_copy import ROOT

COUNTED = ("memory", "popularity", "own", "transitions", "cooccurrence", "vstan", "slist")


@pytest.mark.parametrize("name", [*NAMED, *OTHER_TRANSFORMERS, *COUNTED])
def test_what_can_be_built_is_known(name):
    assert known_architecture(name) == name


def test_every_type_of_transformers_is_known():
    """Also those whose folder has another name."""
    assert [*map(known_architecture, CONFIG_MAPPING)] == [*CONFIG_MAPPING]
    assert "gemma3_text" in CONFIG_MAPPING


def error_of(**model):
    values = read_yaml(ROOT / "params.yaml")
    with pytest.raises(ConfigError) as caught:
        checked_params(values | {"model": values["model"] | model}, "params.yaml")
    return str(caught.value)


@pytest.mark.parametrize("setting", ["architecture", "network"])
def test_an_unknown_name_is_an_error_of_params_yaml_with_those_like_it_and_the_known(setting):
    error = error_of(**{setting: "gtp2"})
    assert error.startswith(f"params.yaml: model.{setting}: ")
    assert "gtp2 is unknown (did you mean gpt2" in error
    for name in (*NAMED, *COUNTED, "any model type of transformers"):
        assert name in error
    assert error.count("\n") == 0


@pytest.mark.parametrize("name", ["sasrec", "SASRec", "gsasrec", "eSASRec", "BERT4Rec", "bert4rec"])
def test_a_recipe_names_its_preset(name):
    preset = f"models/{name.lower()}"
    assert f"dvc exp run --temp $(dayahead preset {preset})" in error_of(architecture=name)
    assert preset in preset_names(ROOT / "presets")


def test_every_preset_of_a_model_is_a_recipe():
    names = preset_names(ROOT / "presets")
    assert {name for name in names if name.startswith("models/")} == {
        f"models/{r}" for r in RECIPES
    }


@pytest.mark.parametrize("name", ["transfo-xl", "transfoxl", "transfo_xl", "Transformer-XL"])
def test_transformer_xl_is_rejected_in_favour_of_xlnet(name):
    error = error_of(architecture=name)
    assert "left transformers in version 5" in error
    assert "xlnet with task.name: clm" in error


@pytest.mark.parametrize("name", ["", "..", "auto/../gpt2", "x" * 5000, "ba\0d", "none"])
def test_what_is_no_name_is_refused_like_any_other(name):
    with pytest.raises(ValueError, match=re.escape(f"{name} is unknown")):
        known_architecture(name)


def test_a_network_may_be_none():
    assert known_network("none") == "none"
    with pytest.raises(ValueError, match="sasrec"):
        known_network("sasrec")
