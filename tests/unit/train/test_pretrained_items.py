"""A study whose items start from a file, and one whose items stay as they are."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from dayahead.core.errors import ConfigError
from dayahead.serve.recommender import Recommender
from support.tiny_settings import train_study
from support.window_folders import write_window_folder

DAYS = [[[1, 2, 3], [3, 4]], [[4, 5, 6], [6, 1]], [[7, 8], [2, 9]]]
DIM = 8


def vector_of(item):
    return [item + place / 10 for place in range(DIM)]


@pytest.fixture
def vectors(tmp_path):
    """Of every second item."""
    values = [8, 6, 4, 2, 100]
    lists = pa.array([vector_of(value) for value in values], pa.list_(pa.float32()))
    pq.write_table(pa.table({"value": values, "vector": lists}), tmp_path / "vectors.parquet")
    return str(tmp_path / "vectors.parquet")


def stored_rows(out):
    vocabulary = pq.read_table(out / "models" / "vocabulary" / "item_id.parquet")
    tensors = load_file(out / "models" / "model.safetensors")
    rows = tensors["weights.inputs.items.weight"]
    return dict(zip(vocabulary["value"].to_pylist(), rows, strict=True)), tensors["weights.bias"]


def study(tmp_path, **changes):
    folder = write_window_folder(tmp_path / "windows", DAYS)
    return train_study(folder, tmp_path, {"model": {"item_embedding_dim": DIM, **changes}})


def test_frozen_items_end_as_they_began_in_whichever_window_they_came(tmp_path, vectors):
    out = study(tmp_path, pretrained_items=vectors, freeze_items=True)
    rows, bias = stored_rows(out)
    assert set(rows) == set(range(1, 10))
    for item in (2, 4, 6, 8):
        torch.testing.assert_close(rows[item], torch.tensor(vector_of(item)))
    assert bias.any()
    by_chance, _ = stored_rows(study(tmp_path / "other", freeze_items=True))
    assert all(torch.equal(rows[item], by_chance[item]) for item in (1, 3, 5, 7, 9))


def test_items_learn_on_from_their_vectors(tmp_path, vectors):
    rows, _ = stored_rows(study(tmp_path, pretrained_items=vectors))
    for item in (2, 4, 6, 8):
        wanted = torch.tensor(vector_of(item))
        assert not torch.equal(rows[item], wanted)
        torch.testing.assert_close(rows[item], wanted, rtol=0, atol=0.2)


def test_a_stored_model_does_without_the_file(tmp_path, vectors):
    out = study(tmp_path, pretrained_items=vectors)
    (tmp_path / "vectors.parquet").unlink()
    assert len(Recommender.load(out / "models").recommend([1, 2], 3)) == 3


def test_vectors_of_another_size_are_refused_before_training(tmp_path, vectors):
    with pytest.raises(ConfigError, match="expected 16 numbers in each"):
        study(tmp_path, pretrained_items=vectors, item_embedding_dim=16)
    assert not (tmp_path / "results" / "windows.csv").exists()
