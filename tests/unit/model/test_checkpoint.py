"""Models built from settings, and in a folder: equal after reading, rejected when incomplete."""

import re
import shutil
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.model import embeddings
from dayahead.model.building import build_model
from dayahead.model.checkpoint import load_model
from dayahead.model.next_item import NextItemModel
from support.stored_models import SIZES, edited, save, stored, vocabulary
from support.tiny_settings import (
    BACKBONES,
    columns_of,
    count_window,
    tiny_model,
    tiny_params,
)
from support.window_folders import FEATURES, tiny_statistics

OLDER = Path(__file__).parents[2] / "older"
"""State that older versions have written."""
EVERY = [*BACKBONES, *((name, "clm") for name in (*BASELINES, MEMORY))]
every_architecture = pytest.mark.parametrize(("architecture", "task"), EVERY)
one_of_each_kind = pytest.mark.parametrize(
    ("architecture", "task"),
    [("xlnet", "rtd"), *((name, "clm") for name in ("transitions", "vstan", "slist", MEMORY))],
)


def scores_of(model, candidates):
    columns = columns_of(torch.tensor([[2, 3, 4, 0], [9, 2, 0, 0]]))
    return model.scorer(torch.from_numpy(candidates).long())(columns, torch.tensor([3, 2]))


def assert_same_tensors(model, other):
    found, wanted = model.state_dict(), other.state_dict()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@every_architecture
def test_a_model_read_again_is_identical(tmp_path, architecture, task):
    written = stored(architecture, task)
    save(tmp_path, written)
    read = load_model(tmp_path)
    assert read.config == written.config
    assert np.array_equal(read.candidates, written.candidates)
    assert read.vocabularies == written.vocabularies
    assert_same_tensors(read.model, written.model)
    assert torch.equal(
        scores_of(read.model, read.candidates), scores_of(written.model, written.candidates)
    )


@pytest.mark.parametrize("architecture", [*BASELINES, MEMORY])
def test_a_baseline_counts_on_after_reading(tmp_path, architecture):
    written = stored(architecture, "clm")
    save(tmp_path, written)
    read = load_model(tmp_path).model
    for model in (written.model, read):
        model.grow({"item_id": 40})
        count_window(model, [[2, 41], [3, 4, 2, 3]], start=90_000)
    assert_same_tensors(read, written.model)


def test_a_model_read_to_serve_leaves_the_state_of_training_on_the_disk(tmp_path):
    written = stored(MEMORY, "clm")
    save(tmp_path, written)
    read = load_model(tmp_path, to_fit=False)
    assert len(written.model.memory.replay.kept)
    assert not len(read.model.memory.replay.kept)
    scores = (scores_of(each.model, each.candidates) for each in (read, written))
    assert torch.equal(*scores)


def test_a_model_to_fit_needs_all_of_its_state(tmp_path):
    save(tmp_path, stored(MEMORY, "clm"))
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["weights.memory.replay.features"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="features"):
        load_model(tmp_path)


@one_of_each_kind
def test_the_same_model_gives_the_same_bytes(tmp_path, architecture, task):
    for folder in (tmp_path / "a", tmp_path / "b"):
        save(folder, stored(architecture, task))
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert [str(file) for file in files if file.parent.name == ""] == [
        "config.json",
        "model.safetensors",
    ]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_a_folder_is_replaced(tmp_path):
    save(tmp_path, stored("gpt2", "clm"))
    save(tmp_path, stored("popularity", "clm"))
    assert [path.name for path in (tmp_path / "vocabulary").iterdir()] == ["item_id.parquet"]


def test_a_model_of_an_older_version_is_one_error_that_says_what_to_do(tmp_path):
    save(tmp_path, stored("gpt2", "clm"))
    shutil.copy(OLDER / "config.json", tmp_path / "config.json")  # as 0.1.0 wrote it
    with pytest.raises(ModelFileError) as error:
        load_model(tmp_path)
    message = str(error.value)
    assert message.startswith(f"{tmp_path}: another version of Dayahead has saved this model (con")
    found = re.search(r"lacks ([\w., ]+); has the unknown ([\w., ]+)\); fit", message)
    lacking, unknown = ({*names.split(", ")} for names in found.groups())
    assert lacking >= {"neighbours", "linear", "memory", "live", "events", "model.network"}
    assert "model.remind" in lacking
    assert unknown == {"task.rtd_generator_share", "task.rtd_tied_generator"}
    assert "dvc repro" in message
    assert "\n" not in message


FILES = ["config.json", "model.safetensors", "vocabulary/item_id.parquet"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_missing_or_damaged_file_is_rejected(tmp_path, file, damage):
    save(tmp_path, stored("gpt2", "clm"))
    path = tmp_path / file
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "cut": whole[:-20], "noise": b"\xff" * 64}[damage])
    with pytest.raises(ModelFileError, match="not a complete model") as error:
        load_model(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.pop("seed"),
        lambda config: config.update(unknown=1),
        lambda config: config["model"].update(architecture="lstm"),
        lambda config: config["model"].update(d_model=32),
        lambda config: config["task"].update(name="mlm"),
        lambda config: config["sizes"].update(item_id=29),
        lambda config: config["statistics"].pop("features"),
        lambda config: config["statistics"].update(features=[]),
        lambda config: config["statistics"]["features"].pop("price"),
        lambda config: config["statistics"]["features"]["price"].update(columns=["cost"]),
        lambda config: config["statistics"]["features"]["price"].update(values=[1, 2]),
        lambda config: config["statistics"]["features"]["price"].update(knots=[], n=5),
        lambda config: config["statistics"]["sessions"].update(max_length=0),
        lambda config: config["statistics"]["sessions"].update(max_length=10**9),
        lambda config: config["statistics"]["sessions"].update(repeats="drop"),
        lambda config: config["sizes"].update({"../item_id": 30}),
        lambda config: config["known"].clear(),
    ],
)
def test_a_config_file_that_does_not_fit_is_rejected(tmp_path, change):
    save(tmp_path, stored("gpt2", "clm"))
    edited(tmp_path, change)
    with pytest.raises(ModelFileError):
        load_model(tmp_path)


@one_of_each_kind
def test_the_vocabulary_of_another_model_is_rejected(tmp_path, architecture, task):
    save(tmp_path, stored(architecture, task))
    pq.write_table(vocabulary(29), tmp_path / "vocabulary" / "item_id.parquet")
    with pytest.raises(ModelFileError, match="'item_id': 29"):
        load_model(tmp_path)


@pytest.mark.parametrize("changes", [{"item_embedding_dim": 8}, {"tie_weights": False}])
def test_a_model_is_read_without_drawing_rows_and_still_grows_by_them(tmp_path, changes):
    written = stored("gpt2", "clm", **changes)
    save(tmp_path, written)
    with patch.object(embeddings, "initial_rows", side_effect=AssertionError):
        found = load_model(tmp_path).model
    assert_same_tensors(found, written.model)
    found.grow(SIZES | {"item_id": 40})
    fresh = tiny_model("gpt2", "clm", n_items=40, **changes)
    for name in (
        "inputs.items.weight",
        *(["output_items.weight"] if "tie_weights" in changes else []),
    ):
        grown, wanted = (dict(each.named_parameters())[name] for each in (found, fresh))
        assert torch.equal(grown[30:], wanted[30:])


@pytest.mark.parametrize("candidates", [[1, 2], [2, 32]])
def test_candidates_outside_the_catalogue_are_rejected(tmp_path, candidates):
    save(tmp_path, stored("gpt2", "clm"))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["candidates"] = torch.tensor(candidates, dtype=torch.int32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="candidates"):
        load_model(tmp_path)


def built(features, **changes):
    statistics = tiny_statistics(FEATURES, max_length=8)
    params = tiny_params({"model": {"features": features, **changes}})
    return build_model(params, statistics, {"item_id": 5, "category": 3}, 1)


@pytest.mark.parametrize(
    ("features", "changes", "message"),
    [
        (
            [],
            {"merge": "elementwise"},
            r"merge: elementwise merges side features.*set model\.merge",
        ),
        (
            ["category"],
            {"number_dim": 4},
            r"encode numeric features, and model\.features names none",
        ),
        (["price"], {"architecture": "memory"}, r"price: memory reads categorical features only"),
        (["category"], {"merge": "elementwise", "soft_one_hot": 4}, r"set both to 0"),
        (["price"], {"soft_one_hot": 4}, r"soft_one_hot: 4.*set model\.number_dim above 0"),
        (
            ["price"],
            {"merge": "elementwise", "number_dim": 4},
            r"item's size, 16; set model\.number",
        ),
    ],
)
def test_settings_that_contradict_each_other_or_have_no_effect_are_rejected(
    features, changes, message
):
    with pytest.raises(ConfigError, match=message):
        built(features, **changes)


@pytest.mark.parametrize(
    ("features", "changes"),
    [
        (["category"], {"merge": "elementwise"}),
        (["price"], {"merge": "elementwise", "number_dim": 16, "soft_one_hot": 3}),
        (["price"], {"number_dim": 4, "soft_one_hot": 3}),
        (["category", "price"], {"number_dim": 4, "feature_norm": True}),
    ],
)
def test_valid_settings_are_built(features, changes):
    assert isinstance(built(features, **changes), NextItemModel)


def test_the_backbone_has_positions_for_the_past():
    items = torch.arange(13)[None] % 5 + 2
    for past_length, fits in ((5, True), (0, False)):
        model = built([], past_length=past_length)
        model.grow({"item_id": 5})
        score = model.scorer(torch.arange(2, 7))
        if fits:
            assert torch.isfinite(score({"item_id": items}, torch.tensor([12]))).all()
        else:
            with pytest.raises(IndexError):
                score({"item_id": items}, torch.tensor([12]))
