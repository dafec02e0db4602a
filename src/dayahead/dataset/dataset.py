"""datasets/<name>.yaml: what a data set is. datasets/template.yaml explains every key."""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import available_timezones

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, read_yaml, validated
from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    PAST_PREFIX,
    ROLES,
    ROW,
    SESSION_ID,
    SESSION_START,
    USER_ID,
    WINDOW,
)
from dayahead.core.errors import ConfigError
from dayahead.dataset.features import FeatureConfig
from dayahead.dataset.quality import QualityConfig

Interval = tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]]
OWN = (SESSION_ID, USER_ID, ITEM_ID, EVENT_TIME, SESSION_START, ROW, WINDOW, *ROLES)
"""Columns of the event table and of its way to the windows; no feature may bear such a name."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SyntheticConfig:
    """Sizes of the generated click log."""

    seed: int
    days: Annotated[int, Field(gt=0)]
    sessions_per_day: Annotated[int, Field(gt=0)]
    n_items: Annotated[int, Field(gt=0)]
    n_topics: Annotated[int, Field(gt=0)]
    start: datetime


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SourceConfig:
    """Where the events come from and how their files are written."""

    urls: tuple[str, ...] = ()
    """Any fsspec URL or local path, globs allowed; ${oc.env:NAME} is filled in."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """By file name; files not named here are recorded, not verified."""
    manual: str | None = None
    """What the user must do where `urls` finds nothing (a token, a form)."""
    synthetic: SyntheticConfig | None = None
    """Generated instead of fetched."""
    format: Literal["csv", "jsonl", "parquet"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    header: tuple[str, ...] | None = None
    """Column names of files without a header line."""
    nulls: tuple[str, ...] = ("",)
    members: tuple[str, ...] = ("*",)
    """Which files of an archive (zip, 7z, tar.gz) to read, as globs."""

    def __post_init__(self) -> None:
        """Refuse a source that names nothing, or two things at once."""
        if bool(self.urls) == (self.synthetic is not None):
            raise ValueError("give either urls or synthetic")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ColumnConfig:
    """A column of the source and the type it must have."""

    column: str
    type: Literal["int", "string"] = "string"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ColumnsConfig:
    """The columns that make events of rows."""

    item_id: ColumnConfig
    session_id: str | None = None
    """Null: sessions are cut from each user's events by sessions.gap_minutes."""
    user_id: str | None = None
    session_start: str | None = None
    """Read like the event time; null: a session starts with its first event."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TimeConfig:
    """How a row's time is written: one column, or a date and an offset from its midnight."""

    column: str
    unit: Literal["s", "ms", "us", "text"] = "text"
    """Unix time in this unit, or text in ISO 8601 order (`2019-10-01 00:00:00 UTC` too)."""
    zone: str = "UTC"
    """IANA name of the clock that wrote text without an offset of its own."""
    offset: str | None = None
    """A column added to `column` (a date), in `offset_unit`."""
    offset_unit: Literal["s", "ms", "us"] = "ms"
    complete_until: datetime | None = None
    """The log is known to be whole up to here, whatever lies beyond; null: up to its last event."""

    def __post_init__(self) -> None:
        """Refuse an unknown clock."""
        if self.zone not in available_timezones():
            raise ValueError(f"zone {self.zone!r} is no IANA name (such as Europe/Oslo)")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RepeatsConfig:
    """What becomes of an item that comes again."""

    rule: Literal["keep", "drop_consecutive", "drop_all"]
    scope: Literal["session", "user"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SessionsConfig:
    """How events become sessions, in the order of the steps."""

    gap_minutes: Annotated[float, Field(gt=0)] | None = None
    repeats: RepeatsConfig
    min_length: Annotated[int, Field(ge=2)] = 2
    max_length: Annotated[int, Field(ge=2)] = 20
    truncate: Literal["first", "last"] = "first"
    past_max_length: Annotated[int, Field(ge=0)] = 0
    """Columns bef_<name> hold this many of the user's events before the session; 0: no such
    columns."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SplitConfig:
    """Roles as intervals of a session's hash in [0, 1)."""

    seed: int
    train: Interval
    valid: Interval
    test: Interval

    def __post_init__(self) -> None:
        """Refuse a role that no session can have."""
        for role, (low, high) in zip(ROLES, (self.train, self.valid, self.test), strict=True):
            if low > high:
                raise ValueError(
                    f"{role}: [{low}, {high}] is no interval; give the lower end first"
                )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DatasetConfig:
    """A data set, whole."""

    description: str
    licence: str
    source: SourceConfig
    columns: ColumnsConfig
    time: TimeConfig
    sessions: SessionsConfig
    features: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], FeatureConfig]
    split: SplitConfig
    quality: QualityConfig = Field(default_factory=QualityConfig)

    def event_columns(self) -> dict[str, str]:
        """Source column of each column of the event table (but `row`, which has none)."""
        named = {
            SESSION_ID: self.columns.session_id,
            USER_ID: self.columns.user_id,
            ITEM_ID: self.columns.item_id.column,
            EVENT_TIME: self.time.column,
            SESSION_START: self.columns.session_start,
            **{name: feature.column for name, feature in self.features.items()},
        }
        return {name: column for name, column in named.items() if column is not None}

    def needed_columns(self) -> list[str]:
        """Columns of the event table without a value in which a row is no event."""
        owner = SESSION_ID if self.columns.session_id is not None else USER_ID
        start = [SESSION_START] if self.columns.session_start is not None else []
        return [owner, ITEM_ID, EVENT_TIME, *start]

    def __post_init__(self) -> None:
        """Refuse sessions given in no way or in two, features that clash, limits of nothing."""
        has_gap = self.sessions.gap_minutes is not None
        if has_gap == (self.columns.session_id is not None):
            raise ValueError("give either columns.session_id or sessions.gap_minutes")
        needs_user = has_gap or self.sessions.repeats.scope == "user"
        if needs_user and self.columns.user_id is None:
            raise ValueError("columns.user_id is needed for gap_minutes and for scope: user")
        taken = [name for name in self.features if name in OWN or name.startswith(PAST_PREFIX)]
        if taken:
            raise ValueError(f"features: {', '.join(taken)}: names of columns of our own")
        for name, feature in self.features.items():
            other = self.features.get(feature.relative_to or name, feature)
            if feature.relative_to and other.kind != "categorical":
                raise ValueError(
                    f"features.{name}.relative_to: {feature.relative_to} is no categorical "
                    f"feature of this data set"
                )
        columns = Counter(
            column for name, feature in self.features.items() for column in feature.columns_of(name)
        )
        if twice := [column for column, n in columns.items() if n > 1]:
            raise ValueError(f"features: {', '.join(twice)}: a column that two features give")
        self._check_limits()

    def _check_limits(self) -> None:
        columns = self.event_columns()
        sided = {name: self.features[name] for name in columns if name in self.features}
        numbers = [name for name, feature in sided.items() if feature.kind != "categorical"]
        self.quality.check_names(list(columns), numbers)


def load_dataset(name: str, folder: Path = Path("datasets")) -> DatasetConfig:
    """Read and check datasets/<name>.yaml, environment variables filled in.

    Raises:
        ConfigError: naming every fault, an unknown data set, or an unset variable.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise ConfigError(f"{path}: no such data set; known are {known}")
    return validated(DatasetConfig, _filled_in(read_yaml(path), path), str(path))


def _filled_in(raw: object, path: Path) -> object:
    """Replace ${oc.env:NAME} in source.urls, the only place where a file may depend on it."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping of settings, found {type(raw).__name__}")
    source = raw.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("urls"), list):
        return raw
    try:
        urls = OmegaConf.to_container(OmegaConf.create(source["urls"]), resolve=True)
    except OmegaConfBaseException as error:
        advice = source.get("manual") or "set the variable and try again"
        raise ConfigError(f"{path}: source.urls: {str(error).splitlines()[0]}; {advice}") from None
    return {**raw, "source": {**source, "urls": urls}}
