"""The table of items as `download` reads it: by the same steps as a log."""

from dataclasses import replace

import pyarrow as pa
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT
from dayahead.core.columns import EVENT_TIME, ITEM_ID, TIMESTAMP
from dayahead.dataset.columns import ColumnsConfig
from dayahead.dataset.forgotten import ForgottenConfig
from dayahead.dataset.items import ItemsConfig
from dayahead.dataset.schema import DatasetConfig

VECTOR = pa.list_(pa.float32())


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ItemTableConfig(DatasetConfig):
    """A data set whose events are rows of the table of items, without sessions and users.

    The event time is that from when a row holds; a table without `items.time` has none.
    """

    items: ItemsConfig

    def __post_init__(self) -> None:
        """Check nothing: `DatasetConfig` has checked the whole file."""

    def event_columns(self) -> dict[str, tuple[str, ...]]:
        """Source columns of each column of data/raw/items-*.parquet except `row`."""
        columns = super().event_columns()
        if not self.has_times:
            del columns[EVENT_TIME]
        columns |= {name: (column,) for name, column in self.items.availability.items()}
        return columns | {name: each.sources for name, each in self.items.vectors.items()}

    def event_schema(self) -> pa.Schema:
        """Columns of data/raw/items-*.parquet, in their order."""
        fields = [field for field in super().event_schema() if field.name not in self._others]
        return pa.schema([*fields, *self._others.items()])

    @property
    def _others(self) -> dict[str, pa.DataType]:
        """Types of the columns that no log has."""
        texts = {name: each.kind == "text" for name, each in self.items.vectors.items()}
        vectors = {name: pa.string() if is_text else VECTOR for name, is_text in texts.items()}
        return dict.fromkeys(self.items.availability, TIMESTAMP) | vectors

    @property
    def has_times(self) -> bool:
        """Whether rows have a time from when they hold."""
        return self.items.time is not None

    def needed_columns(self) -> list[str]:
        """Columns without a value in which a row is dropped."""
        return [ITEM_ID, EVENT_TIME] if self.has_times else [ITEM_ID]


def item_table(dataset: DatasetConfig) -> ItemTableConfig | None:
    """Return the table of items of a data set, if it has one."""
    items = dataset.items
    if items is None:
        return None
    # A query of a warehouse is ordered by time.column: by the item, where rows have no times.
    untimed = replace(
        dataset.time, column=items.item_id.column, offset=None, between=None, complete_until=None
    )
    return ItemTableConfig(
        **vars(dataset)
        | {
            "source": items.source or replace(dataset.source, where={}),
            "columns": ColumnsConfig(item_id=items.item_id),
            "time": items.time or untimed,
            "features": items.features,
            # A table is in no order of time, and names no users.
            "quality": replace(dataset.quality, backwards=None),
            "forgotten": ForgottenConfig(),
        }
    )
