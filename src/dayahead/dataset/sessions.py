"""Section `sessions` of datasets/<name>.yaml: how events become sessions."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Length, SizeOrZero
from dayahead.core.columns import RepeatRule, Truncation

_MINUTE = 60


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RepeatsConfig:
    """Which repeated items are dropped, and within what they count as repeated.

    With columns.event_type, an event repeats only events of its own type.
    """

    rule: RepeatRule
    scope: Literal["session", "user"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SessionsConfig:
    """How events become sessions, in the order of the steps."""

    duplicates: Literal["keep", "drop"] = "keep"
    """Drop events that equal an earlier one of the whole log in every column of the event table, as
    after a delivery that was repeated. `download` leaves them out and counts them by file."""
    gap_minutes: Annotated[float, Field(gt=0, le=5_256_000)] | None = None
    retry_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Drop an event if the one of the same session, user, item and type before it, dropped or not,
    is at most this many seconds older, as after a click that was sent again; null: none."""
    repeats: RepeatsConfig
    min_length: Length = 2
    max_length: Length = 20
    truncate: Truncation = "first"
    past_max_length: SizeOrZero = 0
    """Columns bef_<name> hold at most this many of the user's events before the session; 0: no
    such columns."""

    def __post_init__(self) -> None:
        """Check that retries are looked for within a session only."""
        gap = (self.gap_minutes or float("inf")) * _MINUTE
        if self.retry_seconds is not None and self.retry_seconds > gap:
            raise ValueError(
                f"retry_seconds ({self.retry_seconds:g}) is longer than gap_minutes "
                f"({self.gap_minutes:g}), which ends the session; lower it"
            )
