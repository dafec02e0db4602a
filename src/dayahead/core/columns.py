"""Names, types and reserved indices of all tables, each defined once."""

from typing import Final, Literal

import pyarrow as pa

SESSION_ID: Final = "session_id"
USER_ID: Final = "user_id"
ITEM_ID: Final = "item_id"
EVENT_TIME: Final = "event_time"
SESSION_START: Final = "session_start"
EVENT_TYPE: Final = "event_type"
EVENT_ID: Final = "event_id"
AVAILABLE_FROM: Final = "available_from"
AVAILABLE_UNTIL: Final = "available_until"
ROW: Final = "row"
"""Row number of an event over all sources in order, the second key of a session's order."""

WINDOW: Final = "window"
TARGET: Final = "target"
RANK: Final = "rank"
POSITION: Final = "position"
"""Column of a target's position in its session, 0 for the session's first item."""

INDEX: Final = "index"
VALUE: Final = "value"
FIRST_WINDOW: Final = "first_window"
FIRST_TIME: Final = "first_time"
EVENTS: Final = "events"

PAST_PREFIX: Final = "bef_"
IS_PAST: Final = "_is_past"
"""Column of a batch: 1 at the user's events before the session, 0 at those of the session."""
IS_TARGET: Final = "_is_target"
"""Column of a batch: 1 at events of a type that is predicted; without it, all are."""
WORTH: Final = "_worth"
"""Column of a batch: what each event counts, float32; without it, every event counts 1."""
MARKS: Final[tuple[str, ...]] = (IS_TARGET, WORTH)

PADDING: Final = 0
UNKNOWN: Final = 1
N_RESERVED: Final = 2
"""Vocabulary indices 0 (padding) and 1 (unknown); the first real value has index 2."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
SECOND: Final = 1_000_000
"""Length of a second, in microseconds."""
DAY: Final = 24 * 60 * 60 * SECOND
"""Length of a day, in microseconds."""
LATEST_TIME: Final = 7_258_118_400_000_000
"""The year 2200 in Unix microseconds: later times, or negative ones, are in a wrong unit."""
UNITS: Final = {"day": DAY, "hour": DAY // 24, "minute": DAY // (24 * 60)}
"""Units of a window's length in microseconds."""
IdType = Literal["int", "string"]
"""Type of item ids and of categorical values."""
ID_TYPES: Final = {"int": pa.int64(), "string": pa.string()}
RepeatRule = Literal["keep", "drop_consecutive", "drop_all"]
Truncation = Literal["first", "last"]
FeatureKind = Literal[
    "categorical", "log_number", "number", "relative_number", "hour", "weekday", "item_age"
]

ROLES: Final = ("train", "valid", "test")

RANKS_SCHEMA: Final = pa.schema(
    [
        pa.field(SESSION_ID, pa.string(), nullable=False),
        pa.field(TARGET, pa.int32(), nullable=False),  # catalogue index
        pa.field(RANK, pa.int32()),  # 1 is best; null: the target was no candidate, a miss
    ]
)
POSITIONED_RANKS_SCHEMA: Final = RANKS_SCHEMA.insert(
    1, pa.field(POSITION, pa.int32(), nullable=False)
)
"""Schema for evaluations in which a target need not be its session's last item."""
