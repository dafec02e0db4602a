"""Requests and answers of the HTTP service, checked when they arrive."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.serve.request import ColdStart

LONGEST = 10_000
"""Events of a session; only the last ones are used."""
MAX_SESSIONS_PER_REQUEST = 1_000
MOST_ITEMS = 10_000
ItemId = StrictInt | StrictStr


class Event(BaseModel):
    """An event of a session; further fields are the model's raw features."""

    model_config = ConfigDict(extra="allow")

    item_id: ItemId | None
    event_time: datetime

    @field_validator("event_time")
    @classmethod
    def _in_utc(cls, time: datetime) -> datetime:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time


Events = Annotated[list[Event], Field(max_length=LONGEST)]
Items = Annotated[list[ItemId], Field(max_length=1_000_000)]


class SessionRequest(BaseModel):
    """A session, and how it is answered."""

    model_config = ConfigDict(extra="forbid")

    session: Annotated[list[ItemId], Field(max_length=LONGEST)] | None = None
    """Raw item ids, oldest first; may be empty."""
    events: Events | None = None
    """Instead of `session`, for models that read features."""
    past: Events | None = None
    """The user's earlier events, for models that read them."""
    top_k: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 10
    exclude_seen: bool = False
    cold_start: ColdStart | None = None
    """As in `recommend`; by default what the service was started with."""
    allow: Items | None = None
    """The only items that may come back."""
    deny: Items = []
    """Items that may not come back."""

    @model_validator(mode="after")
    def _has_one_session(self) -> "SessionRequest":
        if (self.session is None) == (self.events is None):
            raise ValueError("give one of session and events")
        if self.past is not None and self.events is None:
            raise ValueError("past requires events, whose times define the past")
        return self


class BatchRequest(BaseModel):
    """Several sessions."""

    model_config = ConfigDict(extra="forbid")

    requests: Annotated[
        list[SessionRequest], Field(min_length=1, max_length=MAX_SESSIONS_PER_REQUEST)
    ]


class Scored(BaseModel):
    """A recommended item."""

    item: int | str
    score: float


class Model(BaseModel):
    """The model that answered."""

    version: str
    window: str


class Answer(BaseModel):
    """The best items, best first."""

    items: list[Scored]
    unknown_items: list[int | str | None]
    """Items of the session that the model does not know."""
    is_cold: bool
    """The model knows no item of the session, nor of the past."""
    model: Model


class Failure(BaseModel):
    """Why there is no answer."""

    error: str


class Answers(BaseModel):
    """An answer or an error for each request, in their order."""

    answers: list[Answer | Failure]


def columns_of(events: list[Event]) -> dict[str, list[Any]]:
    """Return values by column; an event without a field has null there."""
    names = {name: None for event in events for name in (event.model_extra or {})}
    return {
        ITEM_ID: [event.item_id for event in events],
        EVENT_TIME: [event.event_time for event in events],
        **{name: [(event.model_extra or {}).get(name) for event in events] for name in names},
    }
