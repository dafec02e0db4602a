"""Batches of raw rows, as all formats give them, and the rows among them to keep."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.errors import SourceError
from dayahead.core.suggestions import did_you_mean

BLOCK = 8 << 20
"""Bytes of text per batch; for parquet, rows per batch are a 64th of this."""
EXAMPLES = 3
"""Maximum number of invalid rows that messages and reports show."""
UNREADABLE = "unreadable"
"""Reason of rows that cannot be read."""
QUOTE_ADVICE = "If quotes are ordinary characters there, set source.quote to null"
LENIENT = "quality.unreadable above 0 leaves out such rows and counts them"
"""What else may be done about a row that cannot be read."""
_MAX_VALUES = 1000
"""Maximum number of distinct values of a batch that are counted."""
Columns = Mapping[str, pa.DataType]
"""Source columns, with the type to which they will be converted."""
Indices = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class RawBatch:
    """Consecutive rows of one raw file."""

    table: pa.Table
    """The requested columns: text (csv), or of the file's types (JSON lines, parquet)."""
    name: str
    """The file, for messages."""
    unit: str
    """Unit in which rows are counted: line, row, or element of `source.explode`."""
    first: int
    """Number of the first row in that unit, from 1."""
    lines: Indices | None = None
    """Number of each row's line, rows left out included, where it is not that of `first` on."""
    left_out: Mapping[str, Indices] = field(default_factory=dict)
    """Indices in the batch, from 0, of the rows that are not in `table`, by reason."""
    errors: tuple[str, ...] = ()
    """Location and error of the first unreadable ones."""
    multiline: Indices | None = None
    """For csv: indices of rows with a value that spans lines, in any column of the file."""
    undecodable: Indices = field(default_factory=lambda: _NONE)
    """Indices of rows with a value that is not in the file's encoding."""
    undecodable_errors: tuple[str, ...] = ()
    """Location and value of the first of them."""
    filtered: Mapping[str, Counter[str]] = field(default_factory=dict)
    """Values, by column, for which `source.where` left out rows."""

    @property
    def n_rows(self) -> int:
        """Rows in the file, those left out included."""
        return int(self.table.num_rows) + sum(map(len, self.left_out.values()))

    def indices(self) -> Indices:
        """Return each table row's index in the batch, rows left out counted."""
        out = np.concatenate([_NONE, *self.left_out.values()])
        return np.delete(np.arange(self.n_rows), out)

    def location(self, index: int) -> str:
        """Return file and number of a row of `table`, for messages (empty lines do not count)."""
        row = int(self.indices()[index])
        line = "" if self.lines is None else f", line {self.lines[row]:,}"
        is_line = bool(line) and self.unit == "line"
        return f"{self.name}{line}" + ("" if is_line else f", {self.unit} {self.first + row:,}")

    def without(self, reason: str, mask: npt.NDArray[np.bool_]) -> "RawBatch":
        """Leave out the table rows that `mask` marks."""
        if not mask.any():
            return self
        out = np.concatenate([self.left_out.get(reason, _NONE), self.indices()[mask]])
        kept = self.table.filter(pa.array(~mask))
        return replace(self, table=kept, left_out={**self.left_out, reason: out})


def kept_rows(batch: RawBatch, where: Mapping[str, Sequence[str]]) -> RawBatch:
    """Leave out rows whose value, as text, is not one of those that `where` lists for a column."""
    filtered: dict[str, Counter[str]] = {}
    for column, values in where.items():
        text = as_text(batch.table[column].combine_chunks())
        mask = ~np.asarray(pc.is_in(text, value_set=pa.array(values, pa.string())))
        if mask.any():
            counts = pc.value_counts(text.filter(pa.array(mask)))[:_MAX_VALUES].to_pylist()
            filtered[column] = Counter()
            for each in counts:  # null and empty text have one name
                filtered[column][each["values"] or "nothing"] += each["counts"]
            batch = batch.without(f"source.where {column}", mask)
    return replace(batch, filtered=filtered)


def as_text(values: pa.Array) -> pa.Array:
    """Return values as text; floats without a fraction as whole numbers."""
    if pa.types.is_floating(values.type):
        with suppress(pa.ArrowInvalid):  # unless one has a fraction
            return values.cast(pa.int64()).cast(pa.string())
    return values.cast(pa.string())


def find_invalid(values: pa.Array, convert: Callable[[pa.Array], object]) -> Iterator[int]:
    """Find by bisection, in order, the elements that `convert` cannot convert.

    `convert` must raise an ArrowException for a slice if and only if it has an invalid element.
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
                # The lower half is on top of the stack, so that indices are found in order.
                spans += [(middle, high), (low, middle)]


def check_columns(
    columns: Iterable[str], found: Sequence[str], name: str, advice: str = "source.delimiter"
) -> None:
    """Check that each column is in the file exactly once.

    Raises:
        SourceError: naming the columns there are, and the settings to correct.
    """
    for problem, bad in (
        ("no column", [column for column in columns if column not in found]),
        ("more than one column", [column for column in columns if found.count(column) > 1]),
    ):
        if bad:
            names = [*map(str, found)]
            close = f" {hint}" if (hint := did_you_mean(bad[0], {*names} - {*bad})) else ""
            member = ", or name the files of the log in source.members" if "::" in name else ""
            raise SourceError(
                f"{name}: {problem} {', '.join(bad)}; it has {', '.join(names)[:500]}.{close} "
                f"Correct columns, time, features, source.where or {advice} in the data set's "
                f"file{member}"
            )
