"""The item vectors of a saved network: a table, and an index of nearest neighbours by faiss."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dayahead.core.columns import INDEX, ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError
from dayahead.core.files import folder_written_whole, write_json, write_parquet
from dayahead.model.embeddings import VECTOR
from dayahead.serve.export import DESCRIPTION, check_replaceable
from dayahead.serve.recommender import Recommender

FILE: Final = "vectors.parquet"
INDEX_FILE: Final = "index.faiss"
N_LINKS: Final = 32
"""Neighbours that each item is linked with (M); twice as many in the lowest layer."""
BREADTH: Final = 200
"""Candidates that are kept while links or neighbours are looked for (efConstruction, efSearch)."""


def export_vectors(models: Path, folder: Path, *, with_index: bool = False) -> Path:
    """Write a folder: vectors.parquet and export.json, and an index of neighbours if wanted.

    The table has a row for each item that may be recommended, in the order of the catalogue:
    value (raw id), index (of the vocabulary) and vector (float32 list), by which the network, or
    that of `memory`, reads the item. model.pretrained_items takes the file as it is.

    Args:
        models: folder of the saved model.
        folder: to write; it may not exist yet, or holds an earlier export.
        with_index: whether to write index.faiss, too (`write_index`); its items are the column
            index of the table.

    Returns:
        The file of the vectors, or that of the index.

    Raises:
        ConfigError: the model has no network, `folder` holds other files, or faiss is missing.
        ModelFileError: the model is damaged.
    """
    if with_index:
        load_faiss()  # before the model, which takes longer
    check_replaceable(folder)
    recommender = Recommender.load(models)
    config, network = recommender.stored.config, recommender.stored.model.network
    if network is None:
        raise ConfigError(
            f"export: {config.model.architecture} has no item vectors; export a model with a "
            f"network, such as gpt2, or ask this one with `dayahead similar`"
        )
    candidates = recommender.stored.candidates
    candidates = candidates[~recommender.is_unknown(candidates)]
    vectors = network.item_vectors[torch.from_numpy(candidates - N_RESERVED).long()]
    about = {"dataset": config.dataset, "architecture": config.model.architecture,
             "window": config.window}  # fmt: skip
    n_items, dim = vectors.shape
    format_ = "hnsw" if with_index else "vectors"
    description = {"format": format_, **about, "items": n_items, "dimensions": dim}
    with folder_written_whole(folder) as aside:
        write_parquet(aside / FILE, _table(recommender, candidates, vectors.numpy(), about))
        if with_index:
            write_index(aside / INDEX_FILE, candidates, vectors.numpy())
        write_json(aside / DESCRIPTION, description | {"similarity": "cosine"})
    return folder / (INDEX_FILE if with_index else FILE)


def _table(
    recommender: Recommender,
    candidates: NDArray[np.int32],
    vectors: NDArray[np.float32],
    about: dict[str, str],
) -> pa.Table:
    known = recommender.stored.vocabularies[ITEM_ID][VALUE]
    offsets = np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int32)
    fields = [
        pa.field(VALUE, known.type, nullable=False),
        pa.field(INDEX, pa.int32(), nullable=False),
        pa.field(VECTOR, pa.list_(pa.float32()), nullable=False),
    ]
    schema = pa.schema(fields, {f"dayahead.{name}": value for name, value in about.items()})
    columns = [
        known.take(pa.array(candidates - N_RESERVED)),
        pa.array(candidates, pa.int32()),
        pa.ListArray.from_arrays(offsets, vectors.ravel()),
    ]
    return pa.table(columns, schema=schema)


def load_faiss() -> Any:  # noqa: ANN401
    """Import faiss.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("faiss")
    except ImportError:
        raise ConfigError(
            "export: --format hnsw needs the package faiss-cpu: pip install 'dayahead[hnsw]'; or "
            "export --format vectors"
        ) from None


def write_index(path: Path, items: NDArray[np.int32], vectors: NDArray[np.float32]) -> None:
    """Write an index that finds items by the cosine of their vectors.

    Hierarchical navigable small worlds (Malkov and Yashunin 2020). It holds the vectors in unit
    length, so that the inner products that it returns are cosines if the query has it too. The file
    is faiss' own (`faiss.read_index`). With one thread (OMP_NUM_THREADS=1) its bytes are the same
    each time; links may differ otherwise.

    Args:
        path: of the file to write.
        items: [N] catalogue indices, which the index returns.
        vectors: [N, D].

    Raises:
        ConfigError: faiss is not installed.
    """
    faiss = load_faiss()
    graph = faiss.IndexHNSWFlat(vectors.shape[1], N_LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = graph.hnsw.efSearch = BREADTH
    index = faiss.IndexIDMap2(graph)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    of_unit_length = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    index.add_with_ids(np.ascontiguousarray(of_unit_length), items.astype(np.int64))
    faiss.write_index(index, str(path))
