"""The event table as events-*.parquet: one source file's rows in one part or, if long, several."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME
from dayahead.core.fingerprints import sha256_of

ROW_GROUP = 1 << 17
PART = 32 * ROW_GROUP
"""Events per parquet file at most."""


@dataclass(frozen=True)
class Part:
    """One events-*.parquet."""

    file: str
    events: int
    sha256: str
    first_event: str
    """Its earliest time, ISO 8601 in UTC."""
    last_event: str


def part_name(number: int) -> str:
    """File name of the part with this number, from 0."""
    return f"events-{number:05d}.parquet"


def write_parts(folder: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> list[Part]:
    """Write one source file's events; the same rows always give the same bytes.

    Args:
        folder: Where events-00000.parquet and so on are written.
        schema: Columns of the event table.
        tables: Its rows in their order, in tables of any length.
    """
    groups = _row_groups(tables)
    numbers = count()
    return [
        _write_part(
            folder / part_name(next(numbers)),
            schema,
            chain([first], islice(groups, PART // ROW_GROUP - 1)),
        )
        for first in groups
    ]


def _write_part(path: Path, schema: pa.Schema, groups: Iterator[pa.Table]) -> Part:
    events = 0
    times = []
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for group in groups:
            out.write_table(group, row_group_size=ROW_GROUP)
            events += group.num_rows
            times += pc.min_max(group[EVENT_TIME]).as_py().values()
    first, last = min(times).isoformat(), max(times).isoformat()
    return Part(path.name, events, sha256_of(path), first, last)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Cut tables of any length into tables of ROW_GROUP rows, the last one shorter."""
    held: list[pa.Table] = []
    n_held = 0
    for table in tables:
        held.append(table)
        n_held += table.num_rows
        if n_held >= ROW_GROUP:
            joined = pa.concat_tables(held).combine_chunks()
            whole = n_held - n_held % ROW_GROUP
            yield from (joined.slice(start, ROW_GROUP) for start in range(0, whole, ROW_GROUP))
            held, n_held = [joined.slice(whole)], n_held - whole
    if n_held:
        yield pa.concat_tables(held).combine_chunks()
