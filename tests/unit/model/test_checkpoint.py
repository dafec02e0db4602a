"""A model in a folder: read back bit for bit, written twice alike, refused when not whole."""

import errno
import json
import resource
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from dayahead.core.columns import TIMESTAMP
from dayahead.core.errors import ModelFileError
from dayahead.model.checkpoint import (
    ModelConfigFile,
    StoredModel,
    load_model,
    save_model,
    weights_of,
    write_tensors,
)
from support.tiny_settings import (
    BODIES,
    columns_of,
    count_window,
    counted,
    loss_config,
    model_config,
    task_config,
    tiny_model,
)
from support.window_folders import START, tiny_statistics

SIZES = {"item_id": 30, "category": 3}
EVERY = [*BODIES, ("popularity", "clm"), ("transitions", "clm")]
every_architecture = pytest.mark.parametrize(("architecture", "task"), EVERY)


def vocabulary(n_values):
    return pa.table(
        {
            "index": pa.array(range(2, n_values + 2), pa.int32()),
            "value": pa.array(range(100, n_values + 100), pa.int64()),
            "first_time": pa.array([START] * n_values, TIMESTAMP),
        }
    )


def save(folder, written):
    save_model(folder, written, weights_of(written.model))


def stored(architecture, task, **changes):
    """A model of 30 items that has moved away from its initial values."""
    if architecture in ("popularity", "transitions"):
        model, sizes = counted(architecture, [[2, 3, 4], [2, 3]]), {"item_id": 30}
        features = ()
    else:
        model, sizes = tiny_model(architecture, task, n_items=10, **changes), SIZES
        model.grow(sizes)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.01
        features = ("category", "price")
    card = ModelConfigFile(
        dataset="tiny",
        window="2026-01-03",
        model=model_config(architecture=architecture, features=features, **changes),
        task=task_config(name=task),
        loss=loss_config(),
        seed=7,
        sizes=sizes,
        first_sizes=sizes,
        statistics=tiny_statistics(features, max_length=8),
    )
    vocabularies = {column: vocabulary(size) for column, size in sizes.items()}
    return StoredModel(card, model, np.arange(4, 20, dtype=np.int32), vocabularies)


def scores_of(model, candidates):
    columns = columns_of(torch.tensor([[2, 3, 4, 0], [9, 2, 0, 0]]))
    return model.scorer(torch.from_numpy(candidates).long())(columns, torch.tensor([3, 2]))


@every_architecture
def test_what_is_read_scores_bit_for_bit_as_what_was_written(tmp_path, architecture, task):
    written = stored(architecture, task)
    save(tmp_path, written)
    read = load_model(tmp_path)
    assert read.card == written.card
    assert np.array_equal(read.candidates, written.candidates)
    assert read.vocabularies == written.vocabularies
    assert torch.equal(
        scores_of(read.model, read.candidates), scores_of(written.model, written.candidates)
    )


@pytest.mark.parametrize(("architecture", "task"), BODIES)
@pytest.mark.parametrize("changes", [{}, {"tie_weights": False}, {"item_embedding_dim": 8}])
def test_every_tensor_is_read_back_bit_for_bit(tmp_path, architecture, task, changes):
    written = stored(architecture, task, **changes)
    save(tmp_path, written)
    tensors = load_model(tmp_path).model.state_dict()
    wanted = written.model.state_dict()
    assert tensors.keys() == wanted.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in wanted.items())


def test_a_counted_model_counts_on_after_reading(tmp_path):
    written = stored("transitions", "clm")
    save(tmp_path, written)
    read = load_model(tmp_path).model
    for model in (written.model, read):
        model.grow(40)
        count_window(model, [[2, 41]])
    assert np.array_equal(read.following.toarray(), written.model.following.toarray())
    assert np.array_equal(read.popularity, written.model.popularity)


@every_architecture
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


def test_a_folder_is_written_anew(tmp_path):
    save(tmp_path, stored("gpt2", "clm"))
    save(tmp_path, stored("popularity", "clm"))
    assert [path.name for path in (tmp_path / "vocabulary").iterdir()] == ["item_id.parquet"]


PARTS = ["config.json", "model.safetensors", "vocabulary/item_id.parquet"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_missing_or_damaged_part_is_refused_by_name(tmp_path, part, damage):
    save(tmp_path, stored("gpt2", "clm"))
    path = tmp_path / part
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"empty": b"", "cut": whole[:-20], "noise": b"\xff" * 64}[damage])
    with pytest.raises(ModelFileError, match="no whole model") as refusal:
        load_model(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_no_folder_is_refused(tmp_path):
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "nowhere")


def edited(folder, change):
    path = folder / "config.json"
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.pop("seed"),
        lambda card: card.update(unknown=1),
        lambda card: card["model"].update(architecture="lstm"),
        lambda card: card["model"].update(d_model=32),
        lambda card: card["task"].update(name="mlm"),
        lambda card: card["sizes"].update(item_id=29),
        lambda card: card["statistics"].pop("features"),
        lambda card: card["statistics"].update(features=[]),
        lambda card: card["statistics"]["features"].pop("price"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(tmp_path, change):
    save(tmp_path, stored("gpt2", "clm"))
    edited(tmp_path, change)
    with pytest.raises(ModelFileError):
        load_model(tmp_path)


def test_the_weights_of_another_model_are_refused(tmp_path):
    save(tmp_path / "other", stored("bert", "clm"))
    save(tmp_path / "own", stored("gpt2", "clm"))
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "own")
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "own")


@every_architecture
def test_the_vocabulary_of_another_model_is_refused(tmp_path, architecture, task):
    save(tmp_path, stored(architecture, task))
    pq.write_table(vocabulary(29), tmp_path / "vocabulary" / "item_id.parquet")
    with pytest.raises(ModelFileError, match="'item_id': 29"):
        load_model(tmp_path)


def test_a_counted_model_of_another_size_is_refused(tmp_path):
    save(tmp_path, stored("transitions", "clm"))
    edited(tmp_path, lambda card: card["sizes"].update(item_id=29))
    pq.write_table(vocabulary(29), tmp_path / "vocabulary" / "item_id.parquet")
    with pytest.raises(ModelFileError):
        load_model(tmp_path)


@pytest.mark.parametrize("candidates", [[1, 2], [2, 32]])
def test_candidates_that_are_not_held_are_refused(tmp_path, candidates):
    save(tmp_path, stored("gpt2", "clm"))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["candidates"] = torch.tensor(candidates, dtype=torch.int32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="candidates"):
        load_model(tmp_path)


def test_the_card_of_another_seed_is_another_card():
    card = stored("gpt2", "clm").card
    assert replace(card, seed=8) != card


def test_what_the_disk_refuses_is_an_error_of_the_disk(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as found:
            write_tensors(tmp_path / "state.safetensors", {"weights": torch.ones(2**16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.value.errno == errno.EFBIG
    assert found.value.filename == str(tmp_path / "state.safetensors")


def test_tensors_are_readable_to_all_like_any_file(tmp_path):
    path = tmp_path / "state.safetensors"
    write_tensors(path, {"weights": torch.ones(2)})
    assert path.stat().st_mode & 0o777 == 0o644
    assert load_file(path)["weights"].tolist() == [1, 1]
