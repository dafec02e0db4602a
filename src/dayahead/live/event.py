"""A click as a client reports it."""

from typing import Any, NamedTuple


class Event(NamedTuple):
    """A click of a session."""

    id: str
    """By which a click that is reported again is found."""
    session: str
    user: str | None
    time: int
    """When it happened, microseconds since 1970."""
    fields: dict[str, Any]
    """The raw values of item_id and of further columns."""
    position: int = 0
    """Its place in the log, from 1 on; 0 before it is there."""
    arrived: int = 0
    """When the log took it, microseconds since 1970; later positions have no earlier time."""
