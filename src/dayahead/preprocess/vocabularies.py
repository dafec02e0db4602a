"""Vocabularies of a run, grown by the values of new windows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import ID_TYPES
from dayahead.core.files import write_parquet
from dayahead.core.phases import in_phase
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.vocabulary import add_value_counts, empty_value_counts, vocabulary_of
from dayahead.preprocess.incremental import VALUE_COUNTS, WINDOWS
from dayahead.preprocess.items import ItemsByWindow
from dayahead.preprocess.tasks import categorical_columns
from dayahead.windows.folder import GRACE_SUFFIX, vocabulary_path

Values = Mapping[str, pa.Table]
"""`count_values` by column."""


def grow_vocabularies(
    dataset: DatasetConfig,
    run: Path,
    found: Mapping[str, Sequence[Values]],
    items: ItemsByWindow | None,
) -> dict[str, pa.Table]:
    """Add the values of new windows to each vocabulary; write it, and the counts of all values.

    Args:
        dataset: the data set's file.
        run: folder of the run.
        found: by new window, values until its end and, if there are events, in its grace.
        items: the table of items, whose values enter with the window that knows their row.
    """
    vocabularies = {}
    for column in categorical_columns(dataset):
        listed = items.values(column) if items and items.has(column) else {}
        values = []
        for name, parts in found.items():
            until_end, *in_grace = (part[column] for part in parts)
            values.append((name, until_end))
            if name in listed:
                values.append((name, listed[name]))
            values += [(name + GRACE_SUFFIX, each) for each in in_grace]
        vocabularies[column] = _grow(dataset, run, column, values, is_listed=bool(listed))
    return vocabularies


@in_phase("vocabulary")
def _grow(
    dataset: DatasetConfig,
    run: Path,
    column: str,
    windows: Sequence[tuple[str, pa.Table]],
    *,
    is_listed: bool,
) -> pa.Table:
    feature = dataset.all_features.get(column)
    type_ = dataset.columns.item_id.type if feature is None else feature.type
    path = run / VALUE_COUNTS / f"{column}.parquet"
    counts = add_value_counts(
        pq.read_table(path) if path.exists() else empty_value_counts(ID_TYPES[type_]),
        windows,
        min_count=0 if is_listed else feature.min_count if feature else 1,
        looks_ahead=feature is not None and feature.fit == "look_ahead",
    )
    write_parquet(path, counts)
    vocabulary = vocabulary_of(counts)
    write_parquet(vocabulary_path(run / WINDOWS, column), vocabulary)
    return vocabulary
