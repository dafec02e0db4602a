"""Models on the disk that replace each other while one is served."""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.serve import model_source
from dayahead.serve.model_source import ModelSource
from dayahead.serve.recommender import Recommender


@pytest.fixture
def models(saved_model, tmp_path):
    """Two saved models that may be changed."""
    for name, architecture in (("old", "gpt2"), ("new", "transitions")):
        shutil.copytree(saved_model(architecture), tmp_path / name)
    return tmp_path


def publish(folder, name):
    """Swap the link as `nightly` does."""
    aside = folder / ".current"
    aside.symlink_to(name)
    aside.replace(folder / "current")


def architecture(model):
    return model.recommender.stored.config.model.architecture


def test_a_swapped_link_brings_the_new_model_once(models):
    publish(models, "old")
    source = ModelSource.chosen(None, models)
    first = source.load()
    assert (first.version, first.window, architecture(first)) == ("old", "2026-01-01", "gpt2")
    assert source.load_if_new() is None
    publish(models, "new")
    second = source.load_if_new()
    assert (second.version, architecture(second)) == ("new", "transitions")
    assert source.load_if_new() is None


def test_a_folder_written_again_is_another_model(models):
    source = ModelSource.chosen(models / "old", None)
    first = source.load()
    assert first.version.startswith("2026-01-01-")
    shutil.rmtree(models / "old")
    assert source.load_if_new() is None  # while `train` writes, there is none
    shutil.copytree(models / "new", models / "old", ignore=lambda *_: ["config.json"])
    assert source.load_if_new() is None
    shutil.copy(models / "new" / "config.json", models / "old")
    second = source.load_if_new()
    assert architecture(second) == "transitions"
    assert second.version != first.version


def test_a_broken_model_is_refused_once_and_its_successor_taken(models):
    publish(models, "old")
    source = ModelSource.chosen(None, models)
    source.load()
    shutil.copytree(models / "new", models / "broken")
    os.truncate(models / "broken" / "model.safetensors", 100)
    publish(models, "broken")
    with pytest.raises(ModelFileError, match="not a complete model"):
        source.load_if_new()
    assert source.load_if_new() is None
    publish(models, "new")
    assert source.load_if_new().version == "new"


def test_a_model_that_could_not_be_loaded_for_now_is_tried_again(models, monkeypatch):
    publish(models, "old")
    source = ModelSource.chosen(None, models)
    source.load()
    publish(models, "new")

    def lacks_memory(_folder):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model_source.Recommender, "load", lacks_memory)
        with pytest.raises(MemoryError):
            source.load_if_new()
    assert source.load_if_new().version == "new"


def test_a_model_whose_items_are_not_its_candidates_is_refused(models, monkeypatch):
    stored = Recommender.load(models / "old").stored
    damaged = Recommender(replace(stored, candidates=stored.candidates + 1_000))
    monkeypatch.setattr(model_source.Recommender, "load", lambda _folder: damaged)
    with pytest.raises(ModelFileError, match="the model cannot be used"):
        ModelSource.chosen(models / "old", None).load()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.nan, "bias: expected finite numbers"),
        (torch.inf, "bias: expected finite numbers"),
        (3e38, "scores of the model are not finite"),  # their sums are infinite
    ],
)
def test_a_model_whose_scores_are_not_finite_is_refused(models, value, message):
    path = models / "old" / "model.safetensors"
    tensors = load_file(path)
    tensors["weights.inputs.items.weight"] *= 1e6
    tensors["weights.bias"] = torch.full_like(tensors["weights.bias"], value)
    if value == 3e38:
        tensors["weights.inputs.items.weight"] = torch.full_like(
            tensors["weights.inputs.items.weight"], value
        )
    save_file(tensors, path)
    with pytest.raises(ModelFileError, match=message):
        ModelSource.chosen(models / "old", None).load()


def copy_in_place(source, target):
    """Overwrite a file as `cp` does: it stays the same file."""
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)


@pytest.mark.parametrize("architecture", ["gpt2", "memory", "stan", "slist", "gru"])
def test_a_model_goes_on_when_its_files_are_overwritten_or_cut_off(
    saved_model, load, tmp_path, architecture
):
    shutil.copytree(saved_model(architecture), tmp_path / "model")
    source = ModelSource.chosen(tmp_path / "model", None)
    served = source.load()
    wanted = load(architecture).recommend([1, 2, 3], 5)
    for path in sorted((tmp_path / "model").rglob("*.*")):
        path.write_bytes(bytes(len(path.read_bytes())))
        assert served.recommender.recommend([1, 2, 3], 5) == wanted
        os.truncate(path, 0)
        assert served.recommender.recommend([1, 2, 3], 5) == wanted
    with pytest.raises(ModelFileError, match="not a complete model"):
        source.load()


def test_a_model_is_taken_when_all_of_its_files_are_copied_over_the_old_ones(models):
    """In any order, and the vocabulary last, which says when there are more items."""
    shutil.copytree(models / "old", models / "served")
    source = ModelSource.chosen(models / "served", None)
    source.load()
    new = sorted(path for path in (models / "new").rglob("*") if path.is_file())
    paths = {path: models / "served" / path.relative_to(models / "new") for path in new}
    shorter, _, _ = paths
    copy_in_place(shorter, paths[shorter])
    os.truncate(paths[shorter], 100)
    for path in new:
        with pytest.raises(ModelFileError) as refused:
            source.load_if_new()
        assert "\n" not in str(refused.value)
        assert source.load_if_new() is None  # nothing has changed
        copy_in_place(path, paths[path])
        if path != new[-1]:
            os.truncate(paths[new[-1]], 100)
    assert architecture(source.load_if_new()) == "transitions"


def test_a_model_whose_files_change_while_it_is_loaded_is_loaded_again(models, monkeypatch):
    publish(models, "old")
    source = ModelSource.chosen(None, models)
    load = Recommender.load

    def load_meanwhile(folder):
        found = load(folder)
        os.utime(folder / "model.safetensors")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(model_source.Recommender, "load", load_meanwhile)
        with pytest.raises(ModelFileError, match="files changed"):
            source.load()
    assert source.load_if_new().version == "old"


def test_without_a_model_there_is_an_error(tmp_path):
    with pytest.raises(
        ModelFileError, match="nothing is published here yet; run `dayahead nightly`"
    ):
        ModelSource.chosen(None, tmp_path).load()
    with pytest.raises(ModelFileError, match="models: no such folder; expected a model"):
        ModelSource.chosen(tmp_path / "models", None).load()


def test_one_source_is_chosen(models):
    with pytest.raises(ConfigError, match="not both"):
        ModelSource.chosen(models / "old", models)
    assert str(ModelSource.chosen(None, None).folder) == "models"
