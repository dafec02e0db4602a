"""results/baselines/<name>.parquet: ranks that a counting baseline gives the run's targets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import RANK, WINDOW
from dayahead.core.errors import DataError
from dayahead.core.files import write_parquet
from dayahead.metrics.metrics import Ranks
from dayahead.outputs.tables import baseline_path, reading

_SCHEMA = pa.schema(
    [
        pa.field(WINDOW, pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field(RANK, pa.int32()),
    ]
)


def write_baseline_ranks(results: Path, baseline: str, ranks: Mapping[str, Ranks]) -> None:
    """Write the ranks of a baseline by window, in the order of the run's; a miss (0) is null."""
    names, sizes = list(ranks), [len(each) for each in ranks.values()]
    codes = pa.array(np.repeat(np.arange(len(names)), sizes), pa.int32())
    every = np.concatenate([*ranks.values(), np.zeros(0, np.int32)])
    columns = {
        WINDOW: pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
        RANK: pa.array(every, pa.int32(), mask=every == 0),
    }
    write_parquet(_path(results, baseline), pa.table(columns, schema=_SCHEMA))


def read_baseline_ranks(
    results: Path, baseline: str, own: Mapping[str, Ranks], *, has_ticks: bool = False
) -> dict[str, NDArray[np.int32]]:
    """Read a baseline's ranks by window; `own` are the run's ranks of the same targets.

    A run that `has_ticks` has other candidates than its baselines.

    Raises:
        DataError: the file is missing or damaged, or it has other windows, targets or candidates.
    """
    path = _path(results, baseline)
    with reading(path, "ranks by window"):
        table = pq.ParquetFile(path).read()
        windows = table[WINDOW].cast(pa.string()).to_numpy()
        every = table[RANK].cast(pa.int32()).fill_null(0).to_numpy()
    _, starts, sizes = np.unique(windows.astype(str), return_index=True, return_counts=True)
    parts = sorted(zip(starts.tolist(), sizes.tolist(), strict=True))
    found = {str(windows[start]): every[start : start + size] for start, size in parts}
    _check(path, found, own, has_same_candidates=not has_ticks)
    return found


def _check(
    path: Path, found: Mapping[str, Ranks], own: Mapping[str, Ranks], *, has_same_candidates: bool
) -> None:
    """Check windows and numbers of targets, and what is missed, as the file has no target ids."""
    sizes = [[(name, len(ranks)) for name, ranks in each.items()] for each in (found, own)]
    missed, own_missed = (
        np.concatenate([np.zeros(0), *each.values()]) == 0 for each in (found, own)
    )
    is_same = sizes[0] == sizes[1]
    if not is_same or (has_same_candidates and not np.array_equal(missed, own_missed)):
        raise DataError(
            f"{path}: expected the windows, targets and candidates of ranks/, found others; run "
            f"`dvc repro -f train`"
        )


def _path(results: Path, baseline: str) -> Path:
    return baseline_path(results, baseline).with_suffix(".parquet")
