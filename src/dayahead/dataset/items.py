"""Section `items` of datasets/<name>.yaml: a table of items, with what describes them."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT
from dayahead.core.columns import AVAILABLE_FROM, AVAILABLE_UNTIL
from dayahead.dataset.columns import ColumnConfig
from dayahead.dataset.features import FeatureConfig, FeatureName
from dayahead.dataset.source import SourceConfig
from dayahead.dataset.time import TimeConfig

KINDS = ("categorical", "number", "log_number")
"""Kinds of features that a table of items may have: the others need an event."""
DIMENSIONS = 64
"""Default length of the vectors of texts."""
Column = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class VectorConfig:
    """The content of an item as a vector of unit length; items are compared by cosine.

    text    TF-IDF of the words of some columns, then truncated SVD: latent semantic analysis
            (Deerwester et al., 1990). Fitted on the items known in the first
            preprocess.fit_windows windows.
    vector  a list of numbers, of one length in all rows

    An item without a text or a vector has zeros.
    """

    kind: Literal["text", "vector"]
    columns: tuple[Column, ...] = ()
    """Of a text: its parts, of which those that are null are left out."""
    column: Column | None = None
    """Of a vector: lists in parquet, JSON and tables; in csv text such as [0.25, -1]."""
    dimensions: Annotated[int, Field(ge=2, le=4096)] | None = None
    """Of a text: length of its vector. Null: 64."""

    def __post_init__(self) -> None:
        """Check that the kind has the settings it needs and no others."""
        if (self.kind == "text") != bool(self.columns):
            raise ValueError(f"{self.kind} needs {'no' if self.columns else 'some'} columns")
        if (self.kind == "vector") != (self.column is not None):
            raise ValueError(f"{self.kind} needs {'no' if self.column else 'a'} column")
        if self.kind == "vector" and self.dimensions is not None:
            raise ValueError("vector needs no dimensions: its lists have a length")

    @property
    def sources(self) -> tuple[str, ...]:
        """Source columns."""
        return self.columns if self.column is None else (self.column,)

    @property
    def length(self) -> int:
        """Length of the vector of a text."""
        return self.dimensions or DIMENSIONS


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ItemsConfig:
    """A table of items: attributes, texts, vectors, and from when to when each is available.

    Its features become features of every event, as of the event's time or, of an event after the
    end of its session's window, as of that end.
    """

    source: SourceConfig | None = None
    """As the section `source`, without `synthetic`. Null: the catalogue of a generated shop
    (source.synthetic with shop: true)."""
    item_id: ColumnConfig
    """Its type is that of columns.item_id."""
    time: TimeConfig | None = None
    """As the section `time`, without complete_until and settle: from when a row holds. Of the
    rows of an item the newest one at that time holds, as a whole; of those of one time the last.
    Null: every row holds from the first window on, of several of one item the last."""
    available_from: Column | None = None
    """Column of a time, read like `time` here or, where there is none, like the time of events; a
    date alone will do. The item is not recommended before. Null, or 0000-00-00: always."""
    available_until: Column | None = None
    """Likewise: the item is not recommended from then on. Null, or 0000-00-00: for ever."""
    features: dict[FeatureName, FeatureConfig] = Field(default_factory=dict)
    """As the section `features`, of the kinds categorical, number and log_number."""
    vectors: dict[FeatureName, VectorConfig] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that nothing is set that a table of items cannot have."""
        if self.source is not None and self.source.synthetic is not None:
            raise ValueError(
                "source.synthetic: leave out items.source for the catalogue of a generated shop"
            )
        for name in ("complete_until", "settle"):
            if getattr(self.time, name, None) is not None:
                raise ValueError(f"time.{name}: that of events holds; leave it out here")
        for name, feature in self.features.items():
            self._check(name, feature)
        features = {name: _of_item(feature) for name, feature in self.features.items()}
        object.__setattr__(self, "features", features)

    def _check(self, name: str, feature: FeatureConfig) -> None:
        where = f"features.{name}"
        if feature.kind not in KINDS:
            raise ValueError(f"{where}: {feature.kind} is of events; items have {', '.join(KINDS)}")
        if feature.min_count > 1:
            raise ValueError(f"{where}.min_count: values of a table are known without events")
        if feature.fit != "first_windows":
            raise ValueError(f"{where}.fit: {feature.fit}: a table of items needs first_windows")

    @property
    def availability(self) -> dict[str, str]:
        """Source columns of available_from and available_until, where they are given."""
        given = {AVAILABLE_FROM: self.available_from, AVAILABLE_UNTIL: self.available_until}
        return {name: column for name, column in given.items() if column is not None}


def _of_item(feature: FeatureConfig) -> FeatureConfig:
    return replace(feature, of_item=True) if feature.kind == "categorical" else feature
