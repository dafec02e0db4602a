"""datasets/<name>.yaml as dataclasses; datasets/template.yaml explains every key."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, read_yaml, validated
from dayahead.core.columns import (
    AVAILABLE_FROM,
    AVAILABLE_UNTIL,
    EVENT_ID,
    EVENT_TIME,
    EVENT_TYPE,
    FIRST_WINDOW,
    ID_TYPES,
    ITEM_ID,
    PAST_PREFIX,
    ROLES,
    ROW,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
    WINDOW,
)
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import expected
from dayahead.dataset.columns import ColumnsConfig
from dayahead.dataset.features import FeatureConfig, FeatureName
from dayahead.dataset.forgotten import ForgottenConfig
from dayahead.dataset.items import ItemsConfig
from dayahead.dataset.sessions import SessionsConfig
from dayahead.dataset.source import SourceConfig
from dayahead.dataset.time import TimeConfig

Share = Annotated[float, Field(ge=0, le=1)]
Interval = tuple[Share, Share]

RESERVED = (SESSION_ID, USER_ID, ITEM_ID, EVENT_TIME, SESSION_START, ROW, WINDOW, *ROLES)
"""Columns of the event table and of preprocess; no feature may have such a name."""
OF_ITEMS = (FIRST_WINDOW, AVAILABLE_FROM, AVAILABLE_UNTIL)
"""Columns of the table of items, which no feature or vector of it may have."""
OUTSIDE = 0.1
"""Default limit on the share of rows that have no plausible time."""
REQUIRED_NULLS = 0.01
"""Default limit on the share of rows that lack a required value."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SplitConfig:
    """Roles as intervals of a session's hash in [0, 1)."""

    seed: int
    train: Interval
    valid: Interval
    test: Interval

    def __post_init__(self) -> None:
        """Check that each interval is given from low to high."""
        for role, (low, high) in zip(ROLES, (self.train, self.valid, self.test), strict=True):
            if low > high:
                raise ValueError(f"{role}: [{low}, {high}]: expected the lower end first")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class QualityConfig:
    """Limits on defects of the log, as shares; null: no limit, only reported."""

    nulls: dict[str, Share | None] = Field(default_factory=dict)
    """Rows without a value, by column of the event table; default: 0.01 of required columns
    (session or user, item, times), no limit of others."""
    unreadable: Share = 0.0
    """Rows with a value that cannot be read. At 0 the first one ends the stage; above, such rows
    are left out and counted."""
    undecodable: Share | None = 0.001
    """Rows with a value that is not in the encoding of its file. It is read with escapes such as
    \\xe4. Set source.encoding if the whole file has another encoding."""
    multiline: Share | None = 0.0
    """Rows of a csv file with a value that spans lines, as after a stray quote. Set source.quote to
    null if quotes are ordinary characters."""
    duplicates: Share | None = None
    """Events that equal an earlier event of the whole log in every column of the event table."""
    event_ids: Share | None = None
    """Events with the event_id of an earlier event of the log; they are dropped."""
    event_id_conflicts: Share | None = None
    """Those of them that differ from that event in another column."""
    spellings: Share | None = None
    """Events whose session_id, user_id or item_id is a number written as 17.0 or 017, or an id with
    blanks around it, where the log has the same id in another spelling too."""
    session_users: Share | None = None
    """Sessions that hold the events of several users before their window closes: ids that are
    unique for each user only. Checked by `preprocess`."""
    session_days: Share | None = None
    """Events more than 24 hours after the start of their session, as where ids of sessions are used
    again. Checked by `preprocess`."""
    backwards: Share | None = None
    """Events earlier than the event in the preceding row of the same file."""
    negative: dict[str, Share | None] = Field(default_factory=dict)
    """Events with a number below zero, by feature."""
    empty_days: Share | None = None
    """Days (UTC) without an event, between the first and the last that are no strays."""
    outside: Share | None = OUTSIDE
    """Rows with a time outside `time.between`; they are dropped."""
    stray: Share | None = OUTSIDE
    """Events on days far from all others, or later than tomorrow. They are kept out of the windows
    until the log has reached their days."""
    ambiguous: Share | None = None
    """Events with a time without UTC offset in the hour that occurs twice when clocks go back. In a
    file in order of time they are read in that order, elsewhere as the first of the two."""
    nonexistent: Share | None = None
    """Events with such a time in the hour that is left out when clocks go forward: one hour on."""

    def limit(self, check: str, required: Sequence[str]) -> float | None:
        """Return the limit of a check as a share; None: no limit.

        Args:
            check: a key of this section: duplicates, nulls.price ...
            required: columns without a value in which a row is dropped.
        """
        kind, _, column = check.partition(".")
        if kind == "nulls":
            return self.nulls.get(column, REQUIRED_NULLS if column in required else None)
        limit: dict[str, float | None] | float | None = getattr(self, kind)
        return limit.get(column) if isinstance(limit, dict) else limit


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DatasetConfig:
    """datasets/<name>.yaml."""

    description: str
    licence: str
    source: SourceConfig
    columns: ColumnsConfig
    time: TimeConfig
    sessions: SessionsConfig
    features: dict[FeatureName, FeatureConfig]
    items: ItemsConfig | None = None
    split: SplitConfig
    quality: QualityConfig = Field(default_factory=QualityConfig)
    forgotten: ForgottenConfig = Field(default_factory=ForgottenConfig)

    @property
    def all_features(self) -> dict[str, FeatureConfig]:
        """Features of the event table, and those that events have from the table of items."""
        return {**self.features, **(self.items.features if self.items else {})}

    def event_columns(self) -> dict[str, tuple[str, ...]]:
        """Source columns of each column of the event table except `row`, which has none."""
        ids = self.columns.sources()
        first = [name for name in ids if name in (SESSION_ID, USER_ID, ITEM_ID)]
        features = self.features.items()
        return {
            **{name: ids.pop(name) for name in first},
            EVENT_TIME: (self.time.column,),
            **ids,
            **{name: (each.column,) for name, each in features if each.column is not None},
        }

    def event_schema(self) -> pa.Schema:
        """Columns of the event table (data/raw/events-*.parquet), in their order."""
        types = {
            SESSION_ID: pa.string(),
            USER_ID: pa.string(),
            ITEM_ID: ID_TYPES[self.columns.item_id.type],
            EVENT_TIME: TIMESTAMP,
            ROW: pa.int64(),
            SESSION_START: TIMESTAMP,
            EVENT_TYPE: pa.string(),
            EVENT_ID: pa.string(),
        }
        for name, feature in self.features.items():
            types[name] = ID_TYPES[feature.type] if feature.kind == "categorical" else pa.float64()
        present = {ROW, *self.event_columns()}
        return pa.schema([(name, type_) for name, type_ in types.items() if name in present])

    def needed_columns(self) -> list[str]:
        """Columns of the event table without a value in which a row is dropped."""
        owner = SESSION_ID if self.columns.session_id is not None else USER_ID
        start = [SESSION_START] if self.columns.session_start is not None else []
        return [owner, ITEM_ID, EVENT_TIME, *start]

    def __post_init__(self) -> None:
        """Check that the sections fit together."""
        has_gap = self.sessions.gap_minutes is not None
        if has_gap == (self.columns.session_id is not None):
            raise ValueError("give either columns.session_id or sessions.gap_minutes")
        if has_gap and self.columns.session_start is not None:
            raise ValueError(
                "columns.session_start: a session starts with its first event where it is cut with "
                "sessions.gap_minutes; leave it out"
            )
        needs_user = has_gap or self.sessions.repeats.scope == "user"
        if needs_user and self.columns.user_id is None:
            raise ValueError("columns.user_id is needed for gap_minutes and for scope: user")
        if self.forgotten.users and self.columns.user_id is None:
            raise ValueError("columns.user_id is needed for forgotten.users")
        self._add_event_type()
        self._check_items()
        self._check_features()
        self._check_limits()

    def _check_items(self) -> None:
        items, synthetic = self.items, self.source.synthetic
        if items is None:
            return
        if items.item_id.type != self.columns.item_id.type:
            raise ValueError(
                f"items.item_id.type: {items.item_id.type}, but columns.item_id.type is "
                f"{self.columns.item_id.type}; give both the same"
            )
        if items.source is None and not (synthetic and synthetic.shop):
            raise ValueError("items.source: needed, unless source.synthetic has shop: true")
        known = {*self.features, *items.features}
        names = [*(name for name in items.features if name in self.features)]
        names += [name for name in items.vectors if name in known]
        if names:
            raise ValueError(
                f"items: {', '.join(names)}: a feature has this name already; give it another name "
                f"there, or take it out of features"
            )

    def _check_limits(self) -> None:
        """Check that limits name columns of the event table."""
        columns = list(self.event_columns())
        known = {name: each for name, each in self.features.items() if name in columns}
        if self.items is not None:
            known |= self.items.features
            columns += [*self.items.availability, *self.items.features, *self.items.vectors]
        numbers = [name for name, each in known.items() if each.kind != "categorical"]
        for key, names in (("nulls", columns), ("negative", numbers)):
            if unknown := [name for name in getattr(self.quality, key) if name not in names]:
                raise ValueError(f"quality.{key}: {', '.join(unknown)}: {expected(unknown, names)}")

    def _add_event_type(self) -> None:
        """Make the types of events a feature, which windows then hold."""
        column = self.columns.event_type
        if column is not None and EVENT_TYPE not in self.features:
            feature = FeatureConfig(kind="categorical", column=column)
            object.__setattr__(self, "features", {**self.features, EVENT_TYPE: feature})

    def _is_type(self, feature: FeatureConfig) -> bool:
        given = feature.kind, feature.type, feature.column
        return given == ("categorical", "string", self.columns.event_type)

    def _check_features(self) -> None:
        taken = {*RESERVED, *self.columns.sources()}
        feature = self.features.get(EVENT_TYPE)
        if feature is not None and self._is_type(feature):  # one column serves both
            taken.discard(EVENT_TYPE)
        features = self.all_features
        names = [*features]
        if self.items is not None:
            taken.update(OF_ITEMS)
            names += self.items.vectors
        if reserved := [n for n in names if n in taken or n.startswith(PAST_PREFIX)]:
            raise ValueError(f"features: {', '.join(reserved)}: reserved column names")
        categories = [name for name, each in features.items() if each.kind == "categorical"]
        if self.columns.title is not None and self.columns.title not in categories:
            raise ValueError(
                f"columns.title: {self.columns.title} is no categorical feature of this data set; "
                f"{expected([self.columns.title], categories)}; add it to features (kind: "
                f"categorical), or leave columns.title out"
            )
        for name, feature in features.items():
            if feature.relative_to and feature.relative_to not in categories:
                raise ValueError(
                    f"features.{name}.relative_to: {feature.relative_to} is no categorical "
                    f"feature of this data set; {expected([feature.relative_to], categories)}"
                )
        columns = Counter(
            column for name, feature in features.items() for column in feature.columns_of(name)
        )
        if twice := [column for column, n in columns.items() if n > 1]:
            raise ValueError(f"features: {', '.join(twice)}: two features give this column")


def load_dataset(name: str, folder: Path = Path("datasets")) -> DatasetConfig:
    """Read and validate datasets/<name>.yaml, environment variables filled in.

    Raises:
        ConfigError: naming every error, an unknown data set, or an unset variable.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        raise ConfigError(f"{path}: no such data set; {expected([name], known)}")
    return validated(DatasetConfig, _with_environment(read_yaml(path), path), str(path))


def _with_environment(raw: object, path: Path) -> object:
    """Replace ${oc.env:NAME} in source.urls and time.complete_until, which alone may have it."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping of settings, found {type(raw).__name__}")
    filled = _with_urls(raw, f"{path}: ")
    if isinstance(raw.get("items"), dict):
        filled["items"] = _with_urls(raw["items"], f"{path}: items.")
    time = raw.get("time")
    if isinstance(time, dict) and isinstance(time.get("complete_until"), str):
        [until] = _resolved([time["complete_until"]], f"{path}: time.complete_until")
        filled["time"] = time | {"complete_until": until}
    return filled


def _with_urls(section: dict[str, Any], where: str) -> dict[str, Any]:
    source = section.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("urls"), list):
        return dict(section)
    urls = _resolved(source["urls"], f"{where}source.urls", source.get("manual"))
    return {**section, "source": {**source, "urls": urls}}


def _resolved(texts: Sequence[object], where: str, advice: str | None = None) -> Sequence[object]:
    try:
        found = OmegaConf.to_container(OmegaConf.create(list(texts)), resolve=True)
    except OmegaConfBaseException as error:
        advice = advice or "set the variable and try again"
        raise ConfigError(f"{where}: {str(error).splitlines()[0]}; {advice}") from None
    assert isinstance(found, list)
    return found
