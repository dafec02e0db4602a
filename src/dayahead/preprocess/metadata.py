"""Metadata of data/windows: windows.json, statistics.json and the schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dayahead.config.windows import WindowConfig
from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    N_RESERVED,
    PAST_PREFIX,
    ROLES,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import write_text
from dayahead.features.engine import ColumnSchema, Schema, Tags, TensorflowMetadata
from dayahead.features.workflow import Vocabularies, build_workflow, encoded_columns
from dayahead.preprocess.calendar import Calendar
from dayahead.preprocess.defects import SESSION_DAYS, SESSION_USERS
from dayahead.windows.metadata import Defect, Statistics, WindowEntry, WindowsManifest, WindowState


@dataclass(frozen=True)
class WindowCounts:
    """Which windows are kept, and the number of events that each step dropped or kept."""

    window: WindowConfig
    calendar: Calendar
    counts: pd.DataFrame
    """Counts by window: see `preprocess.sessions.STEPS`."""
    log_end: datetime
    without_user: int
    """Number of events without a user, which are dropped where sessions are cut by gaps."""
    steps: Sequence[str]
    """What may drop an event: see `preprocess.sessions.steps_of`."""
    strays: int = 0
    """Number of events outside the log's span, which wait for a longer log."""

    @cached_property
    def entries(self) -> dict[int, WindowEntry]:
        """Entries by position, from the first to the last window in which a session starts."""
        found = np.flatnonzero(self.counts["started"])
        counts = self.counts.loc[found[0] : found[-1]].to_dict("index")
        return {position: self._entry(position, count) for position, count in counts.items()}

    @property
    def kept(self) -> list[int]:
        """Positions of the windows kept, in order of time."""
        return [position for position, entry in self.entries.items() if entry.state == "kept"]

    def check(self, fit_windows: int) -> None:
        """Check that there is something to train on.

        Raises:
            DataError: no window is kept, or those to fit features on have no train session.
            ConfigError: fewer than `fit_windows` windows are kept.
        """
        kept = self.kept
        if not kept:
            states = [entry.state for entry in self.entries.values()]
            raise DataError(
                f"data/windows: none of {len(states)} windows is kept: {states.count('dropped')} "
                f"have fewer sessions than window.min_sessions ({self.window.min_sessions}; the "
                f"fullest has {self.counts['sessions'].max()}), {states.count('open')} are not "
                f"over when the log ends ({_iso(self.log_end)}); lower window.min_sessions, or "
                f"get more of the log"
            )
        if len(kept) < fit_windows:
            raise ConfigError(
                f"params.yaml: preprocess.fit_windows: {fit_windows} windows to fit on, but only "
                f"{len(kept)} kept; lower it, or window.min_sessions ({self.window.min_sessions})"
            )
        if not self.counts.loc[kept[:fit_windows], "train"].any():
            names = ", ".join(self.calendar.names[position] for position in kept[:fit_windows])
            raise DataError(
                f"data/windows: no train session in {names}, on which the features are fitted; "
                f"widen split.train in the data set's file or raise preprocess.fit_windows"
            )

    def manifest(self, hash_seed: int | None) -> WindowsManifest:
        """Return windows.json; events_read is the sum of the other steps."""
        total, kept = self.counts.sum(), self.counts.loc[self.kept].sum()
        return WindowsManifest(
            unit=self.window.unit,
            length=self.window.length,
            log_end=_iso(self.log_end),
            sessions_read=int(total["started"]),
            sessions_kept=int(kept["sessions"]),
            defects=self._defects(total) or None,
            hash_seed=hash_seed,
            steps={
                "events_read": int(total["read"]) + self.without_user + self.strays,
                **({"strays": self.strays} if self.strays else {}),
                "dropped_no_user": self.without_user,
                **{f"dropped_{step}": int(total[step]) for step in self.steps},
                "dropped_windows": int(total["events"] - kept["events"]),
                "events_kept": int(kept["events"]),
            },
            windows=list(self.entries.values()),
        )

    def _defects(self, total: pd.Series) -> dict[str, Defect]:
        found = {SESSION_USERS: total["started"], SESSION_DAYS: total["read"]}
        return {
            name: Defect(found=int(total[name]), of=int(of))
            for name, of in found.items()
            if total[name]
        }

    def _entry(self, position: int, count: Mapping[str, int]) -> WindowEntry:
        state: WindowState = "kept"
        why = None
        edges = (*self.calendar.edges[position : position + 2], self.calendar.closes[position])
        begin, end, closes = (pa.scalar(int(edge), TIMESTAMP).as_py() for edge in edges)
        if self.log_end < closes:
            state = "open"
            why = f"the log ends at {_iso(self.log_end)}, the window at {_iso(closes)}"
        elif count["sessions"] < (least := self.window.min_sessions):
            state = "dropped"
            why = f"{count['sessions']} sessions, window.min_sessions asks for {least}"
        return WindowEntry(
            window=self.calendar.names[position],
            start=_iso(begin),
            end=_iso(end),
            sessions=count["sessions"],
            events=count["events"],
            state=state,
            why=why,
            roles={role: count[role] for role in ROLES},
            overrun_events=count["beyond"],
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def window_schema(statistics: Statistics) -> pa.Schema:
    """Return the columns of a window file, in order; those of past events, if any, last."""
    types = {ITEM_ID: pa.int32(), EVENT_TIME: TIMESTAMP, **encoded_columns(statistics)}
    lists = [pa.field(name, pa.list_(type_)) for name, type_ in types.items()]
    has_past = statistics.sessions.past_max_length > 0
    return pa.schema(
        [
            pa.field(SESSION_ID, pa.string(), nullable=False),
            pa.field(USER_ID, pa.string()),
            pa.field(SESSION_START, TIMESTAMP, nullable=False),
            *lists,
            *(field.with_name(PAST_PREFIX + field.name) for field in lists if has_past),
        ]
    )


def write_merlin_schema(path: Path, statistics: Statistics, vocabularies: Vocabularies) -> None:
    """Write schema.pbtxt, for other Merlin tools: tags, lengths of the lists, domains."""
    metadata = TensorflowMetadata.from_merlin_schema(_merlin_schema(statistics, vocabularies))
    for feature in metadata.proto_schema.feature:
        # Merlin keeps tags in a set, whose order differs between processes.
        feature.annotation.tag.sort()
    write_text(path, metadata.to_proto_text())


def _merlin_schema(statistics: Statistics, vocabularies: Vocabularies) -> Schema:
    rules = statistics.sessions
    lengths = {"": {"min": rules.min_length, "max": rules.max_length}}
    if rules.past_max_length:
        lengths[PAST_PREFIX] = {"min": 0, "max": rules.past_max_length}
    time = ColumnSchema(EVENT_TIME, dtype="datetime64[us]", tags=[Tags.TIME])
    columns = [time, *build_workflow(statistics, vocabularies).output_schema]
    return Schema(
        [
            ColumnSchema(SESSION_ID, dtype="string", tags=[Tags.SESSION_ID]),
            ColumnSchema(USER_ID, dtype="string", tags=[Tags.USER_ID]),
            ColumnSchema(SESSION_START, dtype="datetime64[us]", tags=[Tags.SESSION, Tags.TIME]),
            *(
                _list_column(column, vocabularies, length).with_name(prefix + column.name)
                for prefix, length in lengths.items()
                for column in columns
            ),
        ]
    )


def _list_column(
    column: ColumnSchema, vocabularies: Vocabularies, length: Mapping[str, int]
) -> ColumnSchema:
    properties: dict[str, Mapping[str, object]] = {"value_count": length}
    if column.name in vocabularies:
        size = N_RESERVED + len(vocabularies[column.name])
        properties["domain"] = {"name": column.name, "min": 0, "max": size - 1}
    dtype, tags = column.dtype.without_shape, [*column.tags, Tags.SEQUENCE]
    return ColumnSchema(column.name, dtype=dtype, tags=tags, properties=properties)
