"""The index beside the exported vectors: it finds what an exact search finds, and reads back."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.serve import item_vectors
from dayahead.serve.item_vectors import export_vectors, write_index

K = 20


@pytest.fixture(scope="session")
def faiss():
    return pytest.importorskip("faiss", reason="dayahead[hnsw]")


@pytest.fixture
def without_faiss(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(item_vectors, "import_module", refuse)


def units(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)


def exact(vectors, items, n_asked):
    cosines = units(vectors[:n_asked]) @ units(vectors).T
    return items[np.argsort(-cosines, axis=1, kind="stable")[:, :K]]


def groups(random, n, dim):
    """Vectors of any length around a few centres, as those of items of one kind are."""
    centres = random.normal(size=(40, dim))[random.integers(40, size=n)]
    return centres + 0.2 * random.normal(size=(n, dim))


@pytest.mark.long
@pytest.mark.parametrize("dim", [8, 64])
@pytest.mark.parametrize("kind", ["gaussian", "groups"])
def test_it_finds_the_neighbours_of_an_exact_search(faiss, tmp_path, kind, dim):
    random = np.random.default_rng(dim)
    vectors = random.normal(size=(3000, dim)) if kind == "gaussian" else groups(random, 3000, dim)
    vectors = np.float32(vectors * random.uniform(0.1, 9, size=(3000, 1)))
    items = np.int32(np.sort(random.permutation(9000)[:3000]) + 2)
    write_index(tmp_path / "index.faiss", items, vectors)
    index = faiss.read_index(str(tmp_path / "index.faiss"))
    assert (index.ntotal, index.d) == (3000, dim)
    cosines, found = index.search(np.float32(units(vectors[:300])), K)
    wanted = exact(vectors, items, 300)
    shared = [len({*a} & {*b}) / K for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]
    assert np.mean(shared) >= 0.95
    assert (found[:, 0] == items[:300]).mean() > 0.99  # an item is nearest to itself
    of_item = {item: row for row, item in enumerate(items.tolist())}
    rows = np.vectorize(of_item.get)(found)
    expected = (units(vectors[:300])[:, None] * units(vectors)[rows]).sum(2)
    assert cosines == pytest.approx(expected, abs=1e-5)


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 2**31))
def test_few_items_are_found_exactly_even_without_a_vector(faiss, tmp_path_factory, n, dim, seed):
    vectors = np.float32(np.random.default_rng(seed).normal(size=(n, dim)))
    vectors[::7] = 0
    items = np.arange(2, n + 2, dtype=np.int32)
    path = tmp_path_factory.mktemp("few") / "index.faiss"
    write_index(path, items, vectors)
    cosines, found = faiss.read_index(str(path)).search(np.float32(units(vectors)), n)
    assert all(sorted(row) == items.tolist() for row in found.tolist())
    wanted = np.sort(units(vectors) @ units(vectors).T, axis=1)[:, ::-1]
    assert cosines == pytest.approx(wanted, abs=1e-5)


def test_it_is_exported_beside_the_vectors(faiss, saved_model, tmp_path):
    folder = tmp_path / "out"
    assert export_vectors(saved_model("gpt2"), folder, with_index=True) == folder / "index.faiss"
    table = pq.read_table(folder / "vectors.parquet")
    described = json.loads((folder / "export.json").read_text())
    assert (described["format"], described["similarity"]) == ("hnsw", "cosine")
    vectors = np.array(table["vector"].to_pylist())
    index = faiss.read_index(str(folder / "index.faiss"))
    _, found = index.search(np.float32(units(vectors)), 3)
    assert found[:, 0].tolist() == table["index"].to_pylist()
    again = export_vectors(saved_model("gpt2"), folder)
    assert again == folder / "vectors.parquet"
    assert not (folder / "index.faiss").exists()


def test_without_faiss_one_error_names_the_extra(without_faiss, saved_model, tmp_path):
    with pytest.raises(ConfigError, match=r"faiss-cpu: pip install 'dayahead\[hnsw\]'") as caught:
        export_vectors(saved_model("gpt2"), tmp_path / "out", with_index=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert export_vectors(saved_model("gpt2"), tmp_path / "out").exists()
