"""An index of nearest neighbours over item vectors: HNSW, by faiss, which is an extra."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dayahead.core.errors import ConfigError

FILE: Final = "index.faiss"
N_LINKS: Final = 32
"""Neighbours that each item is linked with (M); twice as many in the lowest layer."""
BREADTH: Final = 200
"""Candidates that are kept while links or neighbours are looked for (efConstruction, efSearch)."""


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
