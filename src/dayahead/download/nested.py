"""Columns by path: fields of nested records, and lists of records as one row per element."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.errors import SourceError
from dayahead.download.batches import Columns, Indices, check_columns


def roots(columns: Iterable[str], names: Sequence[str], explode: str | None) -> list[str]:
    """Return the top-level columns that hold these columns: of their name, else of their path."""
    wanted = [*columns, *([] if explode is None else [explode])]
    return list(dict.fromkeys(each if each in names else each.partition(".")[0] for each in wanted))


def check_paths(columns: Columns, schema: pa.Schema, explode: str | None, name: str) -> None:
    """Check that a table has these columns, at its top or nested, as values rather than records.

    Raises:
        SourceError: naming the columns there are, or the settings that reach into records.
    """
    top = list(schema.names)
    nested = {path: kind for field in schema for path, kind in _paths(field, "", explode)}
    check_columns(
        columns, [*top, *(path for path in nested if path not in top)], name, "source.explode"
    )
    for column in columns:
        kind = schema.field(column).type if column in top else nested[column]
        is_vector = is_list(kind) and pa.types.is_list(columns[column])
        if pa.types.is_nested(kind) and column != explode and not is_vector:
            what = "lists" if is_list(kind) else "records"
            raise SourceError(f"{name}: column {column} holds {what}. {ADVICE}")
    if explode is not None:
        check_list(explode, nested, name)
    if explode is not None and not is_list(nested[explode]):
        raise SourceError(
            f"{name}: column {explode} is {nested[explode]}, expected a list. Correct "
            f"source.explode in the data set's file; records that are in no list need none"
        )


ADVICE = (
    "Name a field of it by its path (events.item); for a list, set source.explode to the path of "
    "the list"
)


def check_list(explode: str, found: Iterable[str], name: str) -> None:
    """Raise SourceError if the list is none of the paths found."""
    if explode not in found:
        raise SourceError(
            f"{name}: no column {explode}; it has {', '.join(sorted(found))[:500]}. Correct "
            f"source.explode in the data set's file"
        )


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's lists."""
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests) or bool(pa.types.is_null(kind))


def _paths(field: pa.Field, before: str, explode: str | None) -> Iterable[tuple[str, pa.DataType]]:
    path, kind = before + field.name, field.type
    yield path, kind
    if path == explode and is_list(kind) and not pa.types.is_null(kind):
        kind = kind.value_type
    for inner in kind if pa.types.is_struct(kind) else ():
        yield from _paths(inner, f"{path}.", explode)


def flat(table: pa.Table, columns: Columns, explode: str | None) -> tuple[pa.Table, Indices | None]:
    """Return the columns at these paths and, if a list is exploded, the record of each row."""
    if explode is None:
        arrays = [value_at(table, column) for column in columns]
        return pa.table(arrays, names=list(columns)), None
    lists = value_at(table, explode)
    if pa.types.is_null(lists.type):
        lists = lists.cast(pa.list_(pa.null()))
    parents, elements = pc.list_parent_indices(lists), pc.list_flatten(lists)
    arrays = []
    for column in columns:
        if column not in table.schema.names and column.startswith(f"{explode}."):
            arrays.append(_field_at(elements, column.removeprefix(f"{explode}.")))
        elif column == explode:
            arrays.append(elements)
        else:
            arrays.append(value_at(table, column).take(parents))
    return pa.table(arrays, names=list(columns)), parents.to_numpy().astype("int64")


def value_at(table: pa.Table, path: str) -> pa.Array:
    """Return the column of this name, else at this path; fields of a null are null."""
    if path in table.schema.names:
        return table[path].combine_chunks()
    name, _, rest = path.partition(".")
    return _field_at(table[name].combine_chunks(), rest)


def _field_at(values: pa.Array, path: str) -> pa.Array:
    names = [field.name for field in values.type] if pa.types.is_struct(values.type) else []
    if path in names:
        return pc.struct_field(values, [names.index(path)])
    name, dot, rest = path.partition(".")
    if name not in names or not dot:
        return pa.nulls(len(values), pa.string())  # a list of nulls alone
    return _field_at(pc.struct_field(values, [names.index(name)]), rest)
