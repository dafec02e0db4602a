"""Reported events, checked one by one: what a model cannot count is refused by name."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.errors import DataError
from dayahead.core.suggestions import found_instead, other_spelling
from dayahead.dataset.time import microseconds
from dayahead.live.event_log import Event
from dayahead.serve.answers import table_of
from dayahead.serve.messages import NAME_LENGTH, LiveEvent, Refused, further_fields
from dayahead.serve.recommender import Recommender

NEARLY = 0.9
"""Similarity from which a name is taken for user_id: a letter more or less."""


def check_events(
    recommender: Recommender, events: Sequence[LiveEvent], earliest: int, latest: int
) -> tuple[list[Event], list[Refused]]:
    """Return the events that can be taken, and why the others cannot.

    Args:
        recommender: the model in use, which says what types the fields have.
        events: some events, at least one.
        earliest: microseconds since 1970; an earlier event cannot be taken.
        latest: a later one neither.
    """
    known = recommender.column_types.keys()
    good: list[Event] = []
    refused: list[Refused] = []
    for event, item in zip(events, _items_of(recommender, events), strict=True):
        time = microseconds(event.event_time)
        if misspelt := _misspelt(event, known):
            refused.append(Refused(event.event_id, misspelt))
        elif isinstance(item, DataError):
            refused.append(Refused(event.event_id, str(item)))
        elif not earliest <= time <= latest:
            refused.append(Refused(event.event_id, _untimely(time, earliest, latest)))
        else:
            fields = {**(event.model_extra or {}), ITEM_ID: item}
            good.append(Event(event.event_id, event.session_id, event.user_id, time, fields))
    return good, refused


def _items_of(
    recommender: Recommender, events: Sequence[LiveEvent]
) -> Sequence[int | str | DataError]:
    """Return the typed item of each event, or why one of its fields has another type."""
    try:
        # Together, which is fast; in halves where there is an error.
        _check_fields(recommender, events)
        items: list[int | str] = table_of(recommender, events)[ITEM_ID].to_pylist()
    except DataError as error:
        if len(events) == 1:
            return [error]
        halves = events[: len(events) // 2], events[len(events) // 2 :]
        return [item for half in halves for item in _items_of(recommender, half)]
    return items


def _check_fields(recommender: Recommender, events: Sequence[LiveEvent]) -> None:
    """Check that each event has the fields that the model reads; they may be null."""
    needed = recommender.column_types.keys() - {ITEM_ID, EVENT_TIME}
    for event in events:
        given = event.model_extra or {}
        if missing := sorted(needed - given.keys()):
            instead = found_instead(missing[0], further_fields(given, needed))
            raise DataError(f"{', '.join(missing)} is missing; this model reads it{instead}")


def _misspelt(event: LiveEvent, known: Collection[str]) -> str:
    """Name a further field that is meant to be one that every event has; empty without any.

    It would be stored as it is, and nobody would find the user in it.

    Args:
        event: the event.
        known: fields that the model reads.
    """
    for name in event.model_extra or ():
        if name not in known and (meant := _meant(name[:NAME_LENGTH])):
            return f"{name[:NAME_LENGTH]}: unknown field; did you mean {meant}?"
    return ""


@lru_cache(maxsize=1000)
def _meant(name: str) -> str:
    """Return the field that userid, User-Id or usr_id are meant to be; empty for another one."""
    return other_spelling(name, ["user_id"], NEARLY) or other_spelling(name, LiveEvent.model_fields)


def _untimely(time: int, earliest: int, latest: int) -> str:
    if time > latest:
        return (
            f"{EVENT_TIME} {shown_time(time)} is in the future; expected at most "
            f"{shown_time(latest)}: set the client's clock"
        )
    return (
        f"{EVENT_TIME} {shown_time(time)} is too old: the model was fitted on all that "
        f"happened before its last window's end; expected {shown_time(earliest)} or later. The log "
        f"of the next fit may have it"
    )


def shown_time(time: int) -> str:
    """Return a time, microseconds since 1970, in ISO 8601."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat()
