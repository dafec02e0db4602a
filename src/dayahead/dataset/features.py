"""Section `features` of datasets/<name>.yaml: what an event, or its item, is described by."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT
from dayahead.core.columns import FeatureKind, IdType

FeatureName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
TIME_FEATURES = ("hour", "weekday", "item_age")
"""Kinds computed from the event's time, without a column of the source."""
SCALED_FEATURES = ("number", "log_number", "relative_number", "item_age")
"""Kinds that are one number, which `scale` applies to."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FeatureConfig:
    """A side feature of every event.

    categorical      int32 index into the feature's own vocabulary
    log_number       float32, log1p (of 0 where negative), then scaled
    number           float32, scaled
    relative_number  float32, (x - m) / m, m the mean of x in the event's category, then scaled
    hour, weekday    float32 <name>_sin and <name>_cos, in window.timezone
    item_age         float32, log1p of the days since the item's first event, then scaled

    A null becomes 1 (unknown) or, of a number, 0 (the mean).
    """

    kind: FeatureKind
    column: str | None = None
    type: IdType = "string"
    """Of a categorical column."""
    min_count: Annotated[int, Field(ge=1)] = 1
    """Of a categorical column: a value enters the vocabulary in the window in which its count of
    events reaches this number; before, it is 1 (unknown)."""
    of_item: bool = False
    """Of a categorical column: whether its values belong to the item, as its brand does. `memory`
    then compares an item's newest value with those of the session."""
    relative_to: Annotated[str, Field(min_length=1)] | None = None
    """Of a relative_number: the categorical feature whose means it is compared with."""
    scale: Literal["standard", "gauss_rank", "fixed"] | None = None
    """standard: (x - mean) / std, from -1,000 to 1,000. gauss_rank: the normal quantile of its
    rank. fixed: nothing is fitted; item_age is divided by log1p(30), others stay. Null: fixed for
    item_age and relative_number, standard for number and log_number."""
    fit: Literal["first_windows", "look_ahead", "look_ahead_window"] = "first_windows"
    """Whose train events give statistics and counts: those of the first preprocess.fit_windows
    windows (of min_count: those so far); of the whole log; of each window itself. The last two are
    the paper's, and look ahead."""

    def __post_init__(self) -> None:
        """Check that the kind has the settings it needs and no others."""
        if (self.kind in TIME_FEATURES) != (self.column is None):
            raise ValueError(f"{self.kind} needs {'no' if self.column else 'a'} column")
        if (self.kind == "relative_number") != (self.relative_to is not None):
            raise ValueError(f"{self.kind} needs {'no' if self.relative_to else 'a'} relative_to")
        of_categories = self.type != "string" or self.min_count > 1 or self.of_item
        if self.kind != "categorical" and of_categories:
            raise ValueError(
                f"{self.kind} needs no type, min_count and of_item: it is not categorical"
            )
        if self.kind not in SCALED_FEATURES and self.scale is not None:
            raise ValueError(f"{self.kind} needs no scale: it is none of {SCALED_FEATURES}")
        self._check_fit()

    def _check_fit(self) -> None:
        if self.fit != "first_windows" and not (self.is_fitted or self.min_count > 1):
            raise ValueError(
                f"fit: {self.fit}: nothing of this {self.kind} is fitted; leave it out, or give "
                f"{'min_count' if self.kind == 'categorical' else 'another scale'}"
            )
        if self.fit == "look_ahead_window" and self.kind == "categorical":
            raise ValueError(
                "fit: look_ahead_window: a vocabulary is the same for all windows; take "
                "first_windows or look_ahead"
            )

    @property
    def scaling(self) -> str:
        """The scale of a number, null resolved."""
        default = "standard" if self.kind in ("number", "log_number") else "fixed"
        return self.scale or default

    @property
    def is_fitted(self) -> bool:
        """Whether its numbers depend on statistics of the events."""
        is_scaled = self.kind in SCALED_FEATURES and self.scaling != "fixed"
        return is_scaled or self.kind == "relative_number"

    def columns_of(self, name: str) -> list[str]:
        """Columns of a window file that the feature called `name` becomes."""
        return [f"{name}_sin", f"{name}_cos"] if self.kind in ("hour", "weekday") else [name]
