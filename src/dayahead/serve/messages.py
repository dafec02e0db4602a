"""Requests of the HTTP service, checked when they arrive, and answers, which need no check."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic_core.core_schema import CoreSchema, custom_error_schema

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.redaction import utf8
from dayahead.core.suggestions import did_you_mean, found_instead
from dayahead.serve.request import ColdStart


@dataclass(frozen=True)
class Expected:
    """One error for a value that is of none of a union's types, in place of one for each type."""

    types: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Wrap pydantic's schema of the union; a value that fits costs nothing more."""
        message = f"expected {self.types}"
        return custom_error_schema(handler(source), "expected", custom_error_message=message)


ItemId = Annotated[StrictInt | StrictStr, Expected("an integer or text")]
T = TypeVar("T")
# The first error ends the check of a list: a body may have a million of them.
Listed = Annotated[list[T], Field(fail_fast=True)]
N_UNKNOWN_FIELDS = 5
"""Number of unknown fields that are named one by one; with more, a message is refused whole."""
N_COMPARED = 20
"""Number of further fields of an event among which a misspelt one is looked for."""
NAME_LENGTH = 100
"""Number of characters of a field's name that an answer repeats."""


class Event(BaseModel):
    """An event of a session; of further fields those are taken that the model reads."""

    model_config = ConfigDict(extra="allow")

    item_id: ItemId | None
    event_time: datetime
    """A date, or seconds since 1970; a date without a zone is in UTC."""

    @field_validator("event_time", mode="before")
    @classmethod
    def _is_date(cls, time: object) -> object:
        # pydantic would read text such as "+5" as seconds.
        if isinstance(time, str) and not re.match(r"\d{4}-\d\d-\d\d", time, re.ASCII):
            raise ValueError("expected a date such as 2026-01-02T10:00:00Z")
        return time


def _valid_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can name half of a pair: "\ud800"
        raise ValueError("expected Unicode text without lone surrogates") from None
    return text


Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Text = Annotated[StrictStr, AfterValidator(_valid_text)]
Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Scalar = Annotated[
    StrictStr | StrictInt | Finite | StrictBool | None,
    Expected("text, a finite number or a boolean"),
]


class LiveEvent(Event):
    """An event of a running session."""

    # Values of any further field; FastAPI's schema has them too.
    __pydantic_extra__: dict[str, Scalar]

    event_id: Name
    """An event that is sent again under this id counts once."""
    session_id: Name
    user_id: Name | None = None
    """By whom it is; [users are erased](security.md) by it."""
    item_id: ItemId


class Asked(BaseModel):
    """A message of which every field is known."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        unknown = [name for name in given if name not in cls.model_fields]
        if len(unknown) > N_UNKNOWN_FIELDS:
            raise ValueError(
                f"{len(given):,} fields; expected some of {', '.join(cls.model_fields)}"
            )
        if unknown:
            raise ValueError("; ".join(cls._unknown(utf8(name[:NAME_LENGTH])) for name in unknown))
        return given

    @classmethod
    def _unknown(cls, name: str) -> str:
        hint = did_you_mean(name, cls.model_fields)
        return f"{name}: unknown field; {hint or 'expected ' + ', '.join(cls.model_fields)}"


class SessionRequest(Asked):
    """A session, and how it is answered."""

    session: Listed[ItemId] | None = None
    """Raw item ids, oldest first; may be empty."""
    events: Listed[Event] | None = None
    """Instead of `session`, for models that read features."""
    session_id: Name | None = None
    """A session whose events were sent to /events."""
    past: Listed[Event] | None = None
    """The user's earlier events, for models that read them."""
    top_k: Annotated[StrictInt, Field(ge=1)] = 10
    exclude_seen: StrictBool = False
    cold_start: ColdStart | None = None
    """As in `recommend`; by default what the service was started with."""
    allow: Listed[ItemId] | None = None
    """The only items that may come back."""
    deny: Listed[ItemId] = []
    """Items that may not come back."""
    where: dict[Text, Listed[Text]] = {}
    """Values of attributes of items: only items with one of the values of each come back."""
    explain: StrictBool = False
    """Whether each item comes with its strongest evidence, for models that have some."""

    @model_validator(mode="after")
    def _has_one_session(self) -> "SessionRequest":
        if self.session is not None and self.events is not None:
            raise ValueError("give session or events, not both")
        if self.session is None and self.events is None and self.session_id is None:
            raise ValueError("give session, events, or the session_id of clicks sent to /events")
        if self.past is not None and self.events is None:
            raise ValueError("past requires events, whose times define the past")
        return self


class SimilarRequest(Asked):
    """An item to which similar ones are wanted."""

    item: ItemId
    top_k: Annotated[StrictInt, Field(ge=1)] = 10
    by: Literal["vectors", "pairs"] | None = None
    """What items are compared by; by default pairs where the model counts them."""
    allow: Listed[ItemId] | None = None
    """The only items that may come back."""
    deny: Listed[ItemId] = []
    """Items that may not come back."""
    where: dict[Text, Listed[Text]] = {}
    """Values of attributes of items: only items with one of the values of each come back."""


class BatchRequest(Asked):
    """Several sessions."""

    requests: Annotated[Listed[SessionRequest], Field(min_length=1)]


class EventBatch(Asked):
    """Events as they happen."""

    events: Annotated[Listed[LiveEvent], Field(min_length=1)]


@dataclass(slots=True)
class Refused:
    """An event that was not taken."""

    event_id: str
    error: str


@dataclass(slots=True)
class IngestResult:
    """The outcome of some events."""

    accepted: int
    """Events that are on disk, and count from the next tick on."""
    duplicates: int
    """Events that were there already."""
    refused: list[Refused]


@dataclass(slots=True)
class Scored:
    """A recommended item."""

    item: int | str
    score: float
    evidence: dict[str, float] | None = None
    """Parts of its lead over the mean candidate, the strongest first; only where asked for."""


@dataclass(slots=True)
class Model:
    """The model that answered."""

    version: str
    window: str


@dataclass(slots=True)
class Answer:
    """The best items, best first."""

    items: list[Scored]
    unknown_items: list[int | str | None]
    """Items of the session that the model does not know."""
    is_cold: bool
    """The model knows no item of the session, nor of the past."""
    model: Model


@dataclass(slots=True)
class SimilarAnswer:
    """The items most like one, best first."""

    items: list[Scored]
    by: str
    """What they were compared by, in words."""
    model: Model


@dataclass(slots=True)
class Failure:
    """Why there is no answer."""

    error: str


@dataclass(slots=True)
class Answers:
    """An answer or an error for each request, in their order."""

    answers: list[Answer | Failure]


def misspelt(found: Mapping[str, Any]) -> str:
    """Name the further field that an event may have in place of one that it must have.

    Args:
        found: one of pydantic's errors.
    """
    if found["type"] != "missing" or (name := found["loc"][-1]) not in LiveEvent.model_fields:
        return ""
    return found_instead(name, further_fields(found["input"], LiveEvent.model_fields))


def further_fields(given: Mapping[str, object], known: Iterable[str]) -> list[str]:
    """Return the first names, shortened, that are none of those known."""
    left_out = {*known}
    names = (name[:NAME_LENGTH] for name in given if name not in left_out)
    return [*islice(names, N_COMPARED)]


def columns_of(events: Sequence[Event], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return item ids, times and those named of the further fields that some event has.

    An event without a field has null there.
    """
    extras = [event.model_extra or {} for event in events]
    found = {name: [extra.get(name) for extra in extras] for name in names
             if any(name in extra for extra in extras)}  # fmt: skip
    return {
        ITEM_ID: [event.item_id for event in events],
        EVENT_TIME: [event.event_time for event in events],
        **found,
    }
