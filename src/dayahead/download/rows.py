"""Some rows of a raw file, as they are written, and how those that cannot be read are found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.errors import SourceError

EXAMPLES = 3
"""How many rows at fault are told of at most."""
Sliced = TypeVar("Sliced", pa.Array, list[bytes])


@dataclass(frozen=True)
class Records:
    """Consecutive rows of one raw file."""

    table: pa.Table
    """The columns asked for: binary (csv), or what the file says (JSON lines, parquet)."""
    name: str
    """The file, for messages."""
    unit: str
    """What rows are counted in: line or row."""
    first: int
    """Number of the first row in that count, from 1."""
    refused: tuple[int, ...] = ()
    """Rows left out of the table, for they are none of its kind: which of all, from 0."""
    faults: tuple[str, ...] = ()
    """Of the first of them: where they stand and what is wrong."""

    @property
    def n_rows(self) -> int:
        """Rows in the file, those left out included."""
        return int(self.table.num_rows) + len(self.refused)

    def positions(self) -> npt.NDArray[np.int64]:
        """Which of all these rows, from 0, each row of `table` is."""
        return np.delete(np.arange(self.n_rows), self.refused)

    def place(self, index: int) -> str:
        """Where a row of `table` stands, for messages (empty lines are not counted)."""
        return f"{self.name}, {self.unit} {self.first + int(self.positions()[index]):,}"


def refused(values: Sliced, convert: Callable[[Sliced], object]) -> Iterator[int]:
    """Find the elements that `convert` refuses, in their order.

    `values` has a length and slices by [low:high]; `convert` refuses a slice with an
    ArrowException if and only if it holds a bad element.
    """
    spans = [(0, len(values))]
    while spans:
        low, high = spans.pop()
        try:
            convert(values[low:high])
        except pa.ArrowException:
            if high - low == 1:
                yield low
            else:
                middle = (low + high) // 2
                spans += [(middle, high), (low, middle)]


def require_columns(columns: Mapping[str, pa.DataType], found: Sequence[str], name: str) -> None:
    """Refuse a file in which a column is missing, or there twice.

    Raises:
        SourceError: naming the columns.
    """
    for fault, faulty in (
        ("no column", [column for column in columns if column not in found]),
        ("more than one column", [column for column in columns if found.count(column) > 1]),
    ):
        if faulty:
            raise SourceError(
                f"{name}: {fault} {', '.join(faulty)}; it has {', '.join(map(str, found))[:500]}. "
                f"Correct columns, time, features or source.delimiter in the data set's file"
            )


def without_nulls(table: pa.Table, nulls: Sequence[str]) -> pa.Table:
    """Make nulls of the texts that stand for them, as the CSV reader does by itself."""
    marks = pa.array(nulls, pa.string())
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            values = table.column(index)
            kept = pc.if_else(pc.is_in(values, marks), None, values)
            table = table.set_column(index, field, kept)
    return table
