"""What a saved model knows of items besides clicks: items.parquet in its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import (
    AVAILABLE_FROM,
    AVAILABLE_UNTIL,
    ID_TYPES,
    ITEM_ID,
    N_RESERVED,
    TIMESTAMP,
    UNKNOWN,
    VALUE,
)
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import did_you_mean
from dayahead.windows.folder import WindowFolder
from dayahead.windows.items import ItemTable
from dayahead.windows.metadata import Statistics

FILE = "items.parquet"
AVAILABILITY = (AVAILABLE_FROM, AVAILABLE_UNTIL)


@dataclass(frozen=True)
class StoredItems:
    """The newest row of each item after the last window fitted."""

    rows: pa.Table
    """item_id (the catalogue index), the raw values of the categorical features, the encoded
    numbers, the vectors that the model reads, and when the item is available."""
    table: ItemTable
    """The same as the model reads it, with vocabulary indices instead of raw values."""

    @classmethod
    def of(
        cls,
        table: ItemTable | None,
        folder: WindowFolder,
        vectors: tuple[str, ...],
    ) -> "StoredItems | None":
        """Return what a model is saved with; None where there is no table.

        Args:
            table: of the folder, as the model reads it.
            folder: the windows.
            vectors: names of those that the model reads.
        """
        statistics = folder.statistics
        if table is None or statistics.items is None:
            return None
        columns = {ITEM_ID: table.rows[ITEM_ID]}
        for name in statistics.items.features:
            column = table.rows[name]
            if statistics.features[name].kind == "categorical":
                column = _raw(column.to_numpy(), folder.vocabulary(name))
            columns[name] = column
        others = [*vectors, *(name for name in AVAILABILITY if name in table.rows.column_names)]
        columns |= {name: table.rows[name] for name in others}
        return cls(pa.table(columns).combine_chunks(), table)

    @classmethod
    def read(
        cls, folder: Path, statistics: Statistics, vocabularies: Mapping[str, pa.Table]
    ) -> "StoredItems":
        """Read the file of a model's folder.

        Args:
            folder: the model's.
            statistics: of the model.
            vocabularies: of the item ids and of the categorical features that the model reads.

        Raises:
            ValueError: the file does not fit the model.
        """
        path = folder / FILE
        rows = pq.read_table(path, partitioning=None).combine_chunks()
        _check(path, rows, statistics, len(vocabularies[ITEM_ID]))
        encoded = rows
        for place, name in enumerate(rows.column_names):
            if name in vocabularies and name != ITEM_ID:
                positions = pc.index_in(rows[name], value_set=vocabularies[name][VALUE])
                indices = pc.fill_null(pc.add(positions, N_RESERVED), UNKNOWN).cast(pa.int32())
                encoded = encoded.set_column(place, name, indices)
        return cls(rows, ItemTable(encoded))

    def places(self, items: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the row of each item, -1 where it is not listed."""
        places = np.searchsorted(self.table.items, items).clip(max=max(0, len(self.rows) - 1))
        if not len(self.rows):
            return np.full(len(items), -1)
        return np.where(self.table.items[places] == items, places, -1)

    def matching(self, wanted: Mapping[str, Sequence[str]]) -> NDArray[np.int32]:
        """Return the items that have one of the values wanted, as text, of each attribute.

        Raises:
            ConfigError: there is no such attribute.
        """
        is_wanted = np.ones(len(self.rows), bool)
        for name, values in wanted.items():
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "the model knows none"
                close = did_you_mean(name, self.attributes)
                raise ConfigError(
                    f"where: {name}: {close or 'unknown'}; expected an attribute of the "
                    f"table of items: {known}"
                )
            found = pc.is_in(self._as_text[name], value_set=pa.array([*values], pa.string()))
            is_wanted &= found.to_numpy(zero_copy_only=False)
        return np.asarray(self.table.items[is_wanted])

    def unmatched(self, wanted: Mapping[str, Sequence[str]]) -> str:
        """Return which values wanted no item has, and which may have been meant; empty: none."""
        found = []
        for name, values in wanted.items():
            known = self._as_text[name].unique().drop_null().to_pylist()
            for value in [each for each in values if each not in known]:
                close = did_you_mean(value, known)
                found.append(f"no item has {name}={value}{f'; {close}' if close else ''}")
        return "; ".join(found)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """Names of the categorical features."""
        types = {*ID_TYPES.values()}
        columns = zip(self.rows.column_names, self.rows.schema.types, strict=True)
        return tuple(name for name, type_ in columns if type_ in types and name != ITEM_ID)

    @cached_property
    def _as_text(self) -> dict[str, pa.Array]:
        return {
            name: self.rows[name].combine_chunks().cast(pa.string()) for name in self.attributes
        }


def _raw(indices: NDArray[np.int32], vocabulary: pa.Table) -> pa.Array:
    """Return the raw values of vocabulary indices; null for reserved ones."""
    places = indices.astype(np.int64) - N_RESERVED
    return vocabulary[VALUE].combine_chunks().take(pa.array(places, mask=places < 0))


def _check(path: Path, rows: pa.Table, statistics: Statistics, n_items: int) -> None:
    """Check the columns of the file, and that it lists items of the catalogue, each once."""
    about = statistics.items
    assert about is not None
    types = {ITEM_ID: [pa.int32()], **{name: [TIMESTAMP] for name in AVAILABILITY}}
    types |= {name: [*ID_TYPES.values(), pa.float32()] for name in about.features}
    given = dict(zip(rows.column_names, rows.schema.types, strict=True))
    for name, type_ in given.items():
        dim = about.vectors.get(name)
        if type_ not in types.get(name, ()) and not (dim and _is_vector(type_, dim)):
            raise ValueError(f"{path}: {name}: unexpected column of type {type_}")
    items = rows[ITEM_ID].to_numpy() if ITEM_ID in given else np.zeros(1)
    is_index = (items >= N_RESERVED) & (items < N_RESERVED + n_items)
    if not (is_index.all() and (np.diff(items) > 0).all()):  # a null is NaN, and none
        raise ValueError(f"{path}: {ITEM_ID}: expected ascending indices of the catalogue")
    vectors = [rows[name].combine_chunks().flatten() for name in about.vectors if name in given]
    if not all(np.isfinite(each.to_numpy(zero_copy_only=False)).all() for each in vectors):
        raise ValueError(f"{path}: expected vectors of finite numbers")


def _is_vector(type_: pa.DataType, dim: int) -> bool:
    # Not by equality: names of the values within lists differ between tables and files.
    is_list = pa.types.is_fixed_size_list(type_)
    return is_list and (type_.value_type, type_.list_size) == (pa.float32(), dim)
