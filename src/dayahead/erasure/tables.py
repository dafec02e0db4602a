"""Tables of a project, searched for rows of users and of their sessions."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

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
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
        table = ds.dataset(path, format="parquet" if is_parquet else "arrow")
        names = [name for name in (USER_ID, SESSION_ID) if name in table.schema.names]
        if column not in names:
            return None
        ids = {name: ds.field(name).cast(pa.string()) for name in names}
        return table.to_table(ids, filter=ids[column].isin(wanted))
    except (OSError, pa.ArrowException) as error:
        raise UnreadableTableError(path) from error
