"""results/predictions/: the items a model would have shown, target by target."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import N_RESERVED, POSITION, RANK, SESSION_ID, TARGET
from dayahead.core.files import write_parquet
from dayahead.metrics.tables import WindowRanks
from dayahead.train.evaluate import Measured

FOLDER = "predictions"
ABOUT = (
    "<window>.parquet, where evaluation.predictions is above 0: session_id, position (where "
    "evaluation.positions is all), target (catalogue index), target_item (raw id), rank (null: no "
    "candidate), items (raw ids, best first; among equal scores the lower catalogue index) and "
    "their scores.\n"
)


def prediction_table(
    ranks: WindowRanks, found: Measured, candidates: NDArray[np.int32], raw: pa.ChunkedArray
) -> pa.Table:
    """Put a window's lists together, in the order of its ranks.

    Args:
        ranks: of the window.
        found: what was measured, the best candidates among it.
        candidates: catalogue indices of the places in `found.best`.
        raw: raw id of every item of the catalogue, by index.
    """
    values = raw.combine_chunks()
    n_targets, n_best = found.best.shape
    ends = pa.array(np.arange(n_targets + 1) * n_best, pa.int32())
    items = values.take(pa.array(candidates[found.best.ravel()] - N_RESERVED))
    columns = {
        SESSION_ID: ranks.session_ids,
        POSITION: None if ranks.positions is None else pa.array(ranks.positions, pa.int32()),
        TARGET: pa.array(ranks.targets, pa.int32()),
        "target_item": values.take(pa.array(ranks.targets - N_RESERVED)),
        RANK: pa.array(ranks.ranks, pa.int32(), mask=ranks.ranks == 0),
        "items": pa.ListArray.from_arrays(ends, items),
        "scores": pa.ListArray.from_arrays(ends, pa.array(found.best_scores.ravel())),
    }
    return pa.table({name: values for name, values in columns.items() if values is not None})


def write_predictions(results: Path, window: str, table: pa.Table) -> None:
    """Write one window's lists whole."""
    write_parquet(results / FOLDER / f"{window}.parquet", table)
