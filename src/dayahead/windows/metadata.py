"""Typed content of windows.json and statistics.json."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Length, SizeOrZero, validated
from dayahead.core.columns import UNITS, FeatureKind, IdType, RepeatRule, Truncation
from dayahead.core.errors import ConfigError, WindowError
from dayahead.core.files import read_json

T = TypeVar("T")
WindowUnit = Literal["day", "hour", "minute"]
WindowState = Literal["kept", "dropped", "open"]
"""dropped: fewer sessions than window.min_sessions; open: the log ends before the window does."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowEntry:
    """One window of the log in windows.json."""

    window: str
    """Name: 2019-10-01, 2019-10-01T13 or 2019-10-01T1304, by the unit."""
    start: str
    """ISO 8601, UTC, like `end`."""
    end: str
    sessions: int
    events: int
    state: WindowState
    why: str | None
    """Reason of a state other than kept."""
    roles: dict[str, int]
    """Sessions by role."""
    overrun_events: int
    """Events at or after the window's end + grace, dropped or not."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Defect:
    """How many sessions or events of a log have a defect; see section `quality`."""

    found: int
    of: int
    """How many there are."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowsManifest:
    """windows.json."""

    unit: WindowUnit
    length: int = 1
    """Units per window."""
    log_end: str
    """ISO 8601, UTC."""
    sessions_read: int
    sessions_kept: int
    steps: dict[str, int]
    """Events read, dropped by each step, and kept."""
    defects: dict[str, Defect] | None = None
    """Defects of session ids that were found: session_users, session_days; null: none."""
    hash_seed: int | None = None
    """Where session ids hold a user's id: seed with which `WindowFolder` hashes them. Null: they
    are read as they are."""
    windows: list[WindowEntry]
    """Windows from the first to the last in which a session starts, in order of time."""

    def as_json(self) -> dict[str, Any]:
        """Return the content of windows.json; what is null is left out."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    @property
    def spans(self) -> str:
        """Name of the windows in "average over ...": days, or windows of 4 minutes."""
        is_one = self.length == 1
        return f"{self.unit}s" if is_one else f"windows of {self.length} {self.unit}s"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NumberStatistics:
    """Fitted statistics of a numeric feature; null where its kind and scale need none."""

    relative_to: str | None = None
    """Categorical feature whose averages a relative_number is compared with."""
    values: list[int | str] | None = None
    """Categories with an average of their own."""
    means: list[float] | None = None
    """Averages of `values`."""
    overall_mean: float | None = None
    """Average used for every other category."""
    mean: float | None = None
    """Mean of a feature with scale: standard; `std` is its deviation."""
    std: float | None = None
    knots: list[float] | None = None
    """Quantiles, ascending, of a feature with scale: gauss_rank."""
    n: int | None = None
    """How many numbers the quantiles were computed from."""

    @property
    def scaling(self) -> str:
        """The kind of scale that was fitted; fixed means none."""
        if self.knots is not None:
            return "gauss_rank"
        return "fixed" if self.mean is None else "standard"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FeatureStatistics(NumberStatistics):
    """One feature in statistics.json."""

    kind: FeatureKind
    columns: list[str]
    """Columns of a window file that hold the feature."""
    type: IdType | None = None
    """Type of a categorical feature's raw values."""
    of_item: Literal[True] | None = None
    """Whether the values belong to items: of a table of items, or as a categorical feature says."""
    windows: dict[str, NumberStatistics] | None = None
    """Statistics by window, of a feature that is fitted on each window (fit: look_ahead_window)."""

    @property
    def newest(self) -> NumberStatistics:
        """The fitted statistics; if each window has its own, those of the newest."""
        return self.windows[max(self.windows)] if self.windows else self


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SessionRules:
    """Rules that windows and live sessions follow (section `sessions` of the data set's file)."""

    repeats: RepeatRule
    min_length: Length
    max_length: Length
    truncate: Truncation
    past_max_length: SizeOrZero


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ItemStatistics:
    """What items.parquet holds."""

    features: list[str]
    """Features whose values are those of the item; they are among `Statistics.features` too."""
    vectors: dict[str, int]
    """Number of dimensions of each vector."""
    availability: bool
    """Whether items are available from or until a time."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Statistics:
    """statistics.json: how raw events become model input."""

    unit: WindowUnit
    length: int = 1
    """Units per window; models saved by 0.1.0 lack it."""
    timezone: str
    item_type: IdType
    sessions: SessionRules
    fitted_on: list[str]
    """Windows whose train sessions the features were fitted on."""
    features: dict[str, FeatureStatistics]
    title: str | None = None
    """Categorical feature that is the item's title."""
    event_type: str | None = None
    """Categorical feature that says what happened to the item."""
    items: ItemStatistics | None = None
    """Of the table of items, where the data set has one."""

    @property
    def window_length(self) -> int:
        """Length of a window in microseconds; days count as 24 hours."""
        return UNITS[self.unit] * self.length

    def category_of(self, name: str) -> tuple[str, IdType] | None:
        """Return the categorical feature that a relative_number is compared with, and its type.

        A model may read the number without the category, which is then not among `features`.
        """
        fitted = self.features[name].newest
        if fitted.relative_to is None:
            return None
        if fitted.relative_to in self.features:
            return fitted.relative_to, self.features[fitted.relative_to].type or "string"
        is_text = all(isinstance(value, str) for value in fitted.values or ())
        return fitted.relative_to, "string" if is_text else "int"

    def at(self, window: str) -> "Statistics":
        """Return the statistics that encode a window."""
        own = {
            name: replace(feature, windows=None, **vars(feature.windows[window]))
            for name, feature in self.features.items()
            if feature.windows
        }
        return replace(self, features={**self.features, **own})

    def select(self, features: Iterable[str]) -> "Statistics":
        """Return the statistics of some features only."""
        return replace(
            self,
            features={name: self.features[name] for name in features},
            title=None,
            event_type=None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of statistics.json; fields that are null are left out."""
        return asdict(self, dict_factory=_given)


def has_vector(statistics: Statistics, name: str) -> bool:
    """Return whether items have a vector of this name."""
    return statistics.items is not None and name in statistics.items.vectors


def read_metadata(cls: type[T], path: Path) -> T:
    """Read windows.json (as WindowsManifest) or statistics.json (as Statistics).

    Raises:
        WindowError: the file is missing or damaged.
    """
    try:
        return validated(cls, read_json(path), str(path))
    except (OSError, ValueError) as error:
        raise WindowError(f"{path}: not readable ({error}); run `dvc repro preprocess`") from None
    except ConfigError as error:
        raise WindowError(f"{error}; run `dvc repro -f preprocess`") from None


def _given(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out fields that are null; `kind` and `columns` come before inherited fields."""
    given = {name: value for name, value in fields if value is not None}
    return {name: given[name] for name in ("kind", "columns") if name in given} | given
