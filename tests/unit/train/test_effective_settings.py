"""Settings that no cache key holds change no weight of the model."""

import pytest

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.config.effective_settings import effective_settings
from dayahead.config.model import FITTED
from support.memory_models import MEMORY_WITH_GPT2
from support.other_settings import OTHER
from support.tiny_settings import merge_sections, tiny_params, train_study
from support.typed_windows import add_types
from support.window_folders import markov_days, write_window_folder

FAST = ("transitions", "vsknn", "vstan", "slist", MEMORY)
"""Baselines that read different settings; the others are slow."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    days = markov_days(n_days=2, sessions_per_day=12, n_items=30)
    folder = write_window_folder(tmp_path_factory.mktemp("windows"), days, features=True)
    return add_types(folder)


@pytest.mark.parametrize(
    "base",
    [
        {},
        {"training": {"steps_per_window": 3}},
        {"loss": {"name": "bpr", "negatives": 0}},
        {"training": {"optimizer": "adagrad"}},
        *(
            pytest.param(
                {"model": {"architecture": name}}, marks=() if name in FAST else pytest.mark.slow
            )
            for name in (*BASELINES, MEMORY)
        ),
        MEMORY_WITH_GPT2,
        {"training": {"protocol": "from_scratch"}},
        {"model": {"architecture": "transitions"}, "training": {"protocol": "from_scratch"}},
    ],
    ids=[
        *("default", "steps", "bpr", "adagrad", *BASELINES, MEMORY, "with gpt2", "from scratch"),
        "transitions from scratch",
    ],
)
def test_all_settings_without_effect_together_change_no_weight(windows, tmp_path, base):
    held = effective_settings(tiny_params(base))
    others = {
        section: {
            name: value
            for name, value in values.items()
            # The precision is in the keys as what it means on this machine.
            if name not in held[section] and name != "precision"
        }
        for section, values in OTHER.items()
    }
    assert sum(map(len, others.values())) >= 12
    found = [
        train_study(windows, tmp_path / name, sections) / "models" / "model.safetensors"
        for name, sections in (("one", base), ("other", merge_sections(base, **others)))
    ]
    assert found[0].read_bytes() == found[1].read_bytes()


def test_every_section_that_models_are_built_from_says_who_reads_it():
    assert {*effective_settings(tiny_params())} == {*FITTED, "events"} == {*OTHER}


@pytest.mark.parametrize(
    ("training", "is_held"),
    [
        ({}, True),
        ({"protocol": "sliding"}, True),
        ({"protocol": "sliding", "carry_model": False}, False),
        ({"protocol": "from_scratch"}, False),
    ],
    ids=["incremental", "sliding", "sliding afresh", "from scratch"],
)
def test_carry_optimizer_counts_where_a_model_is_carried(training, is_held):
    held = effective_settings(tiny_params({"training": training}))
    assert ("carry_optimizer" in held["training"]) == is_held


@pytest.mark.parametrize(
    ("base", "is_held"),
    [({}, True), ({"model": {"architecture": MEMORY}}, True), (MEMORY_WITH_GPT2, True)]
    + [({"model": {"architecture": name}}, False) for name in BASELINES],
)
def test_past_length_counts_where_a_past_is_read(base, is_held):
    assert ("past_length" in effective_settings(tiny_params(base))["model"]) == is_held
