"""Recommendations for all sessions of a file, as a parquet file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import ITEM_ID, RANK, SESSION_ID, VALUE
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import written_whole
from dayahead.core.ragged import row_of_each, step_of_each
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.serve.session_files import Part, SessionFile

METADATA = ("dataset", "window", "architecture")


@dataclass
class Summary:
    """Counts of a call of `recommend_file`."""

    sessions: int = 0
    rows: int = 0
    cold: int = 0
    """Sessions of which the model knows no item."""


def recommend_file(
    recommender: Recommender,
    source: Path,
    output: Path,
    options: Options,
    progress: Callable[[int, float | None], None] = lambda sessions, share: None,
) -> Summary:
    """Write the top items of every session: session_id, rank (1 is best), item and score.

    Sessions are read, answered and written a part at a time. The file is written whole or not at
    all; its metadata names data set, architecture and last fitted window of the model. A session
    that `options` refuse has no rows.

    Args:
        recommender: the model.
        source: `SessionFile`.
        output: a .parquet file.
        options: of all sessions.
        progress: called with the sessions answered and, if known, the share of `source` read.

    Raises:
        ConfigError: `output` is not a parquet file, or is `source`.
        DataError: `source` cannot be read, or all of its sessions are refused.
    """
    if output.suffix != ".parquet" or output.resolve() == source.resolve():
        raise ConfigError(
            f"{output}: expected another file than --sessions, whose name ends in .parquet"
        )
    config = recommender.stored.config
    needs_times = bool(recommender.features)
    file = SessionFile(source, recommender.column_types, config.end, needs_times=needs_times)
    summary = Summary()
    with written_whole(output) as temporary:
        schema = _schema(recommender, file.id_type)
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for part, n_read in file.parts():
                writer.write_table(_answered(recommender, part, options, schema, summary))
                progress(summary.sessions, n_read / file.n_rows if file.n_rows else None)
        if 0 < summary.sessions == summary.cold and options.cold_start == "refuse":
            raise DataError(
                f"{source}: the model knows no item of any of the {summary.sessions:,} sessions; "
                f"expected ids of the data set it was fitted on, {config.dataset}. To recommend "
                f"the most popular items instead, add --cold-start popularity"
            )
    return summary


def _schema(recommender: Recommender, id_type: pa.DataType) -> pa.Schema:
    config = recommender.stored.config
    item_type = recommender.stored.vocabularies[ITEM_ID].schema.field(VALUE).type
    values = (config.dataset, config.window, config.model.architecture)
    named = zip(METADATA, values, strict=True)
    return pa.schema(
        [
            pa.field(SESSION_ID, id_type, nullable=False),
            pa.field(RANK, pa.int32(), nullable=False),
            pa.field("item", item_type, nullable=False),
            pa.field("score", pa.float32(), nullable=False),
        ],
        metadata={f"dayahead.{name}": value for name, value in named},
    )


def _answered(
    recommender: Recommender, part: Part, options: Options, schema: pa.Schema, summary: Summary
) -> pa.Table:
    found = recommender.rank(part.sessions, [options] * len(part.sessions))
    rows, ranks = row_of_each(found.counts), step_of_each(found.counts)
    summary.sessions += len(found.counts)
    summary.rows += len(rows)
    summary.cold += int(found.is_cold.sum())
    columns = [
        part.ids.take(pa.array(rows)),
        pa.array((ranks + 1).astype(np.int32)),
        recommender.items_of(found),
        pa.array(found.scores[found.is_used]),
    ]
    return pa.table(columns, schema=schema)
