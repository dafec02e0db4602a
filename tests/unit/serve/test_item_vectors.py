"""The item vectors: those of the model, as an index and pretrained_items read them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.model.embeddings import read_item_vectors
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems


def test_they_are_those_of_the_candidates(load):
    model = load("gpt2")
    table = model.item_vectors()
    assert [str(field.type) for field in table.schema] == ["int64", "list<item: float>"]
    values = model.stored.vocabularies["item_id"]["value"]
    assert table["value"].to_pylist() == [
        values[index - N_RESERVED].as_py() for index in model.stored.candidates
    ]
    weight = model.stored.model.inputs.items.weight
    for index, vector in zip(model.stored.candidates, table["vector"].to_pylist(), strict=True):
        assert np.array_equal(np.float32(vector), weight[index - N_RESERVED].detach().numpy())


def test_their_cosines_are_the_scores_of_similar(load):
    table = load("gpt2").item_vectors()
    vectors = np.array(table["vector"].to_pylist())
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    row = table["value"].to_pylist().index(3)
    near = np.argsort(-(units @ units[row]))[1:4]
    [top] = SimilarItems(load("gpt2")).find([3], Options(top_k=3))
    assert [item for item, _ in top] == table["value"].take(pa.array(near)).to_pylist()


def test_they_are_taken_as_pretrained_items(load, tmp_path):
    model = load("gpt2")
    table = model.item_vectors()
    pq.write_table(table, tmp_path / "vectors.parquet")
    vocabulary = model.stored.vocabularies["item_id"]
    rows = read_item_vectors(tmp_path / "vectors.parquet", vocabulary, len(table["vector"][0]))
    assert torch.equal(rows.rows + N_RESERVED, torch.from_numpy(model.stored.candidates).long())


def test_the_network_of_memory_has_vectors_too(load):
    model = load("memory", network="gpt2")
    assert len(model.item_vectors()) == len(model.stored.candidates)
    finder = SimilarItems(model)
    assert finder.kind() == "pairs"
    assert finder.description("vectors") == "vectors: cosine of the item vectors of gpt2"
    assert finder.find([1], Options(top_k=3), "vectors") != finder.find([1], Options(top_k=3))


def test_what_has_no_vectors_is_refused(load):
    with pytest.raises(ConfigError, match=r"^transitions has no item vectors; load a"):
        load("transitions").item_vectors()
