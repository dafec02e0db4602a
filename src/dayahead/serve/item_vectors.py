"""The item vectors of a saved network as a table, for an index of nearest neighbours."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dayahead.core.columns import INDEX, ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError
from dayahead.core.files import folder_written_whole, write_json, write_parquet
from dayahead.model.embeddings import VECTOR
from dayahead.serve import vector_index
from dayahead.serve.export import DESCRIPTION, check_replaceable
from dayahead.serve.recommender import Recommender

FILE = "vectors.parquet"


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
        vector_index.load_faiss()  # before the model, which takes longer
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
            vector_index.write_index(aside / vector_index.FILE, candidates, vectors.numpy())
        write_json(aside / DESCRIPTION, description | {"similarity": "cosine"})
    return folder / (vector_index.FILE if with_index else FILE)


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
