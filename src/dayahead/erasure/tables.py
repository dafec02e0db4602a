"""Tables of a project, searched for rows of users and of their sessions."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import SESSION_ID, USER_ID

_PARQUET, _ARROW = b"PAR1", b"ARROW1"


class UnreadableTableError(Exception):
    """A table that cannot be searched, such as one that a killed process has not finished."""


def tables_in(folder: Path) -> Iterator[Path]:
    """Yield the parquet and Arrow files below a folder, by content: DVC's cache has no suffixes."""
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):
            if path.is_file():
                with path.open("rb") as file:
                    if file.read(len(_ARROW)).startswith((_PARQUET, _ARROW)):
                        yield path


def rows_of(path: Path, column: str, values: Collection[str]) -> pa.Table | None:
    """Return ids of users and sessions, as text, in the rows whose `column` has one of the values.

    Returns:
        None where the file has no such column.

    Raises:
        UnreadableTableError: the file cannot be read.
    """
    wanted = pa.array(sorted(values), pa.string())
    found = []
    try:
        for batch in _batches(path, column):
            ids = batch.cast(pa.schema([(name, pa.string()) for name in batch.schema.names]))
            found.append(ids.filter(pc.is_in(ids[column], wanted)))
    except (OSError, pa.ArrowException, LookupError) as error:
        raise UnreadableTableError(path) from error
    return pa.concat_tables(found) if found else None


def _batches(path: Path, column: str) -> Iterator[pa.Table]:
    """Yield the columns of ids, some rows at a time."""
    with path.open("rb") as file:
        is_parquet = file.read(len(_PARQUET)) == _PARQUET
    if is_parquet:
        parquet = pq.ParquetFile(path)
        names = parquet.schema_arrow.names
        if column in names:
            wanted = [name for name in (USER_ID, SESSION_ID) if name in names]
            for batch in parquet.iter_batches(columns=wanted):
                yield pa.Table.from_batches([batch])
        return
    with pa.memory_map(str(path)) as source:
        arrow = pa.ipc.open_file(source)
        names = arrow.schema.names
        if column in names:
            wanted = [name for name in (USER_ID, SESSION_ID) if name in names]
            for number in range(arrow.num_record_batches):
                yield pa.Table.from_batches([arrow.get_batch(number).select(wanted)])
