"""NDCG@20 of sessions whose last item before the target is unknown, and of all others.

Reads the results and windows of the last run in this project, evaluated with evaluation.positions
last, and prints means over its windows. An item is unknown that was not in the catalogue of the
model, which was fitted up to the window before.

Command, after `dvc repro` or `dvc exp apply`: python benchmarks/unknown_items.py
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.config.params import load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED, SESSION_ID
from dayahead.metrics.metrics import mean, target_metric
from dayahead.outputs.tables import WindowRanks, read_ranks, read_windows
from dayahead.windows.folder import Window, WindowFolder

RESULTS = Path("results")


def main() -> None:
    """Print the means."""
    params, folder = load_params(), WindowFolder(Path("data/windows"))
    evaluated = {row.window for row in read_windows(RESULTS / "windows.csv", [20])}
    rows = []
    for before, window in zip(folder.windows, folder.windows[1:], strict=False):
        if window.name in evaluated:
            n_known = folder.n_known(ITEM_ID, before)
            ranks = read_ranks(RESULTS, window.name)
            is_unknown = last_items(folder, window, params.evaluation.split, ranks) >= (
                N_RESERVED + n_known
            )
            values = target_metric("ndcg_at_20", ranks.ranks)
            rows.append((is_unknown.mean(), mean(values[is_unknown]), mean(values[~is_unknown])))
    share, unknown, others = (mean(column) for column in zip(*rows, strict=True))
    print(f"{params.model.architecture}, model.unknown_rate {params.model.unknown_rate}")
    print(f"last item unknown  {unknown:.4f}  ({100 * share:.0f} % of the sessions)")
    print(f"others             {others:.4f}")


def last_items(
    folder: WindowFolder, window: Window, split: str, ranks: WindowRanks
) -> NDArray[np.int32]:
    """Index of the last item before the target, of the ranked sessions."""
    sessions = folder.read(window, split, [SESSION_ID, ITEM_ID])
    rows = pc.index_in(ranks.session_ids.combine_chunks(), sessions[SESSION_ID].combine_chunks())
    items: pa.ListArray = sessions[ITEM_ID].combine_chunks().take(rows)
    return np.asarray(items.flatten())[np.asarray(items.offsets)[1:] - 2 - items.offsets[0].as_py()]


if __name__ == "__main__":
    main()
