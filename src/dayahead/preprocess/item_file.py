"""items.parquet: a row per item and window in which it changed, encoded like events."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import FIRST_WINDOW, ITEM_ID
from dayahead.core.files import write_parquet
from dayahead.core.phases import in_phase
from dayahead.dataset.items import VectorConfig
from dayahead.features.workflow import Vocabularies, encode
from dayahead.preprocess.incremental import KNOWN_ITEMS, TEXTS, WINDOWS
from dayahead.preprocess.items import ItemsByWindow, Matrix, matrix_of
from dayahead.preprocess.texts import TextEncoder, unit_length
from dayahead.preprocess.unlisted_items import warn_of_unlisted
from dayahead.windows.folder import ITEMS
from dayahead.windows.metadata import Statistics


@in_phase("items")
def write_items(
    known: ItemsByWindow,
    run: Path,
    statistics: Statistics,
    vocabularies: Vocabularies,
) -> None:
    """Append the rows that new windows know to a run's items.parquet.

    Encoders of texts are fitted on the newest rows of the items known in the windows that features
    are fitted on, unless the run has them.
    """
    warn_of_unlisted(known, vocabularies[ITEM_ID])
    items, positions = known.rows, known.positions
    is_known = positions < len(known.names)
    rows = np.flatnonzero(is_known & (positions >= known.n_written) & known.is_newest(positions))
    table = items.table.take(pa.array(rows))
    found = encode(table, statistics.select(items.config.items.features), vocabularies)
    names = pa.array(known.names, pa.string()).take(pa.array(positions[rows]))
    found = found.add_column(0, FIRST_WINDOW, names)
    for name in items.config.items.availability:
        found = found.append_column(name, table[name])
    is_fitted = positions <= known.names.index(statistics.fitted_on[-1])
    fitted = items.table.filter(pa.array(is_fitted & known.is_newest(is_fitted.astype(np.int64))))
    for name, vector in items.config.items.vectors.items():
        encoder = _encoder(run / TEXTS / name, vector, fitted[name])
        encoded = encoder.vectors(table[name]) if encoder else unit_length(matrix_of(table[name]))
        found = found.append_column(name, _fixed(encoded, items.statistics.vectors[name]))
    found = found.sort_by([(FIRST_WINDOW, "ascending"), (ITEM_ID, "ascending")])
    path = run / WINDOWS / ITEMS
    written = [pq.read_table(path, partitioning=None)] if path.exists() else []
    write_parquet(path, pa.concat_tables([*written, found]).combine_chunks())
    write_parquet(run / KNOWN_ITEMS, items.table.filter(pa.array(is_known)))


def _encoder(folder: Path, vector: VectorConfig, texts: pa.ChunkedArray) -> TextEncoder | None:
    """Return the encoder of a run's texts, fitted once; None for vectors."""
    if vector.kind == "vector":
        return None
    if not folder.exists():
        TextEncoder.fit(texts, vector.length).write(folder)
    return TextEncoder.read(folder)


def _fixed(vectors: Matrix, length: int) -> pa.FixedSizeListArray:
    values = np.zeros((len(vectors), length), np.float32)
    values[:, : vectors.shape[1]] = vectors
    # Named as parquet names it: what was written and read again is then like what is new.
    kind = pa.list_(pa.field("element", pa.float32()), length)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=kind)
