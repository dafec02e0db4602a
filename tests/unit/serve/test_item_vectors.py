"""The exported item vectors: those of the model, as an index and pretrained_items read them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.model.embeddings import read_item_vectors
from dayahead.serve.item_vectors import export_vectors
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems


def exported(models, folder, *options, format_="vectors"):
    words = ["export", str(folder), "--format", format_, "--models", str(models), *options]
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.output == f"{folder / 'vectors.parquet'}\n"
    return pq.read_table(folder / "vectors.parquet")


def test_they_are_those_of_the_candidates(saved_model, load, tmp_path):
    model = load("gpt2").stored
    table = exported(saved_model("gpt2"), tmp_path / "out")
    assert [str(field.type) for field in table.schema] == ["int64", "int32", "list<element: float>"]
    assert table["index"].to_pylist() == model.candidates.tolist()
    values = model.vocabularies["item_id"]["value"]
    for value, index, vector in zip(*(each.to_pylist() for each in table.columns), strict=True):
        assert value == values[index - N_RESERVED].as_py()
        weight = model.model.inputs.items.weight[index - N_RESERVED]
        assert np.array_equal(np.float32(vector), weight.detach().numpy())
    found = {key.decode(): text.decode() for key, text in table.schema.metadata.items()}
    config = model.config
    assert found == {
        "dayahead.dataset": config.dataset,
        "dayahead.architecture": "gpt2",
        "dayahead.window": config.window,
    }
    described = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (described["items"], described["dimensions"]) == (len(table), len(vector))
    assert described["window"] == model.config.window


def test_their_cosines_are_the_scores_of_similar(saved_model, load, tmp_path):
    table = exported(saved_model("gpt2"), tmp_path / "out")
    vectors = np.array(table["vector"].to_pylist())
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    row = table["value"].to_pylist().index(3)
    near = np.argsort(-(units @ units[row]))[1:4]
    [top] = SimilarItems(load("gpt2")).find([3], Options(top_k=3))
    assert [item for item, _ in top] == table["value"].take(pa.array(near)).to_pylist()


def test_they_are_taken_as_pretrained_items(saved_model, load, tmp_path):
    table = exported(saved_model("gpt2"), tmp_path / "out")
    dim = len(table["vector"][0])
    vocabulary = load("gpt2").stored.vocabularies["item_id"]
    rows = read_item_vectors(tmp_path / "out" / "vectors.parquet", vocabulary, dim)
    assert torch.equal(rows.rows + N_RESERVED, torch.tensor(table["index"].to_pylist()))


def test_the_network_of_memory_has_vectors_too(tmp_path, saved_model, load):
    models = saved_model("memory", network="gpt2")
    table = exported(models, tmp_path / "out")
    model = load("memory", network="gpt2")
    assert len(table) == len(model.stored.candidates)
    finder = SimilarItems(model)
    assert finder.kind() == "pairs"
    assert finder.description("vectors") == "vectors: cosine of the item vectors of gpt2"
    assert finder.find([1], Options(top_k=3), "vectors") != finder.find([1], Options(top_k=3))


def test_what_has_no_vectors_is_refused(saved_model, tmp_path):
    with pytest.raises(ConfigError, match=r"^export: transitions has no item vectors; export a"):
        exported(saved_model("transitions"), tmp_path / "out")
    with pytest.raises(ConfigError, match="leave out --top-k"):
        exported(saved_model("gpt2"), tmp_path / "out", "--top-k", "3")
    with pytest.raises(ConfigError, match="leave out --top-k"):
        exported(saved_model("gpt2"), tmp_path / "out", "--top-k", "3", format_="hnsw")
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="mine: exists and is no earlier export"):
        export_vectors(saved_model("gpt2"), tmp_path / "mine")
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_an_earlier_export_is_replaced(saved_model, tmp_path):
    for _ in range(2):
        exported(saved_model("gpt2"), tmp_path / "out")
    names = sorted(each.name for each in (tmp_path / "out").iterdir())
    assert names == ["export.json", "vectors.parquet"]
