"""SQL that reads some columns of a table or query, its rows in the order of their values."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Reading:
    """What is read of a table, and in which order its rows come."""

    columns: Sequence[str]
    """Columns at the top of the table."""
    time: str
    """Column, or path of a field, by which rows are ordered first; rows without a time last."""
    order: Sequence[str] = ()
    """Columns that order rows of equal time. Others that are read decide where these are equal."""


_FINITE = (
    "CASE {0} WHEN 'infinity' THEN '9999-12-31' WHEN '-infinity' THEN '0001-01-01' ELSE {0} END"
)
"""A date or time that another library can hold."""


def select(
    relation: str,
    schema: pa.Schema,
    reading: Reading,
    as_text: Sequence[str],
    binary: str = "",
    *,
    has_infinity: bool = False,
) -> str:
    """Return a SELECT of these columns, in which rows that are equal in all of them are alike.

    Args:
        relation: a table's name, or a query in parentheses.
        schema: columns of the relation.
        reading: what is read.
        as_text: columns that become text.
        binary: the clause with which text is compared byte by byte, where that is no default.
        has_infinity: whether dates and times may be infinite: these become far ones.
    """

    def value(column: str) -> str:
        """Return the expression of a column."""
        whole = f"q.{quoted(column)}"
        if has_infinity and pa.types.is_temporal(schema.field(column).type):
            return _FINITE.format(whole)
        return f"CAST({whole} AS text)" if column in as_text else whole

    def key(column: str) -> str:
        """Return the expression of a column that breaks ties."""
        is_text = column in as_text or _is_text(schema.field(column).type)
        return value(column) + (binary if is_text else "")

    shown = ", ".join(f"{value(column)} AS {quoted(column)}" for column in reading.columns)
    first = [f"q.{path(each, schema)}" for each in (reading.time, *reading.order)]
    others = [key(column) for column in reading.columns]
    keys = ", ".join(f"{each} NULLS LAST" for each in dict.fromkeys([*first, *others]))
    return f"SELECT {shown} FROM {relation} AS q ORDER BY {keys}"  # noqa: S608 - a user's own query


def with_text(found: pa.Schema, as_text: Sequence[str]) -> pa.Schema:
    """Return columns as they are read: some become text."""
    kinds = {each.name: each.type for each in found}
    return pa.schema(kinds | dict.fromkeys(as_text, pa.string()))


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def path(column: str, schema: pa.Schema) -> str:
    """Return a column, or the field at a path as far as it is within records, for SQL."""
    if column in schema.names:
        return quoted(column)
    name, _, rest = column.partition(".")
    found, kind = [name], schema.field(name).type
    while rest and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        name, _, rest = (rest, "", "") if rest in names else rest.partition(".")
        if name not in names:
            break
        found.append(name)
        kind = kind.field(name).type
    return ".".join(map(quoted, found))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
