"""Section `columns` of datasets/<name>.yaml: which columns of the source are ids."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT
from dayahead.core.columns import (
    EVENT_ID,
    EVENT_TYPE,
    ITEM_ID,
    SESSION_ID,
    SESSION_START,
    USER_ID,
    IdType,
)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ColumnConfig:
    """A column of the source and the type its values are converted to.

    string  as it is written: 17, 017 and 17.0 are three ids
    int     whole numbers of at most 64 bits: 17, 017, 17.0 and 17 with blanks around are one id
    """

    column: str
    type: IdType = "string"


Key = str | ColumnConfig | Annotated[tuple[str | ColumnConfig, ...], Field(min_length=1)]
"""A column of text, a column with its type, or several columns that are an id together."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ColumnsConfig:
    """Source columns of ids and of the session's start.

    Ids of sessions and users are text. An id of several columns is their values in this order,
    joined by a colon; a colon or backslash within a value gets a backslash before it, so that no
    two keys share an id. It is null where one of the values is.
    """

    item_id: ColumnConfig
    session_id: Key | None = None
    """A column, {column, type}, or a list of these that is unique together, such as [user, visit]
    where visits are counted for each user. Null: each user's events are split into sessions by
    sessions.gap_minutes."""
    user_id: Key | None = None
    """A column, {column, type}, or a list of these."""
    session_start: str | None = None
    """Read like the event time; null: a session starts with its first event."""
    title: str | None = None
    """Categorical feature of this data set (`features`) that is the item's title: the report shows
    it in place of the id."""
    event_type: str | None = None
    """What happened to the item: view, cart, purchase. Events of another type are no repeats of
    each other (sessions.repeats, sessions.retry_seconds). A feature of this column may be called
    event_type, no other one."""
    event_id: str | None = None
    """Id of the message: `download` keeps the first of the rows with one id, in the order of the
    files, and counts the others. Rows without an id are events of their own."""

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return the source columns of each id column of the event table, in the table's order."""
        others = {
            ITEM_ID: self.item_id.column,
            SESSION_START: self.session_start,
            EVENT_TYPE: self.event_type,
            EVENT_ID: self.event_id,
        }
        keys = {name: tuple(each.column for each in self.key(name)) for name in self.key_names}
        return keys | {name: (column,) for name, column in others.items() if column is not None}

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return which of session_id and user_id the source has."""
        return tuple(name for name in (SESSION_ID, USER_ID) if getattr(self, name) is not None)

    def key(self, name: str) -> tuple[ColumnConfig, ...]:
        """Return the columns that make session_id or user_id, with their types."""
        given: Key = getattr(self, name)
        parts = given if isinstance(given, tuple) else (given,)
        return tuple(ColumnConfig(column=p) if isinstance(p, str) else p for p in parts)

    @property
    def session_holds_user(self) -> bool:
        """Whether the id of a session contains that of its user, so that results hash it."""
        names = self.sources()
        users = set(names.get(USER_ID, ()))
        return self.session_id is None or (bool(users) and users <= set(names[SESSION_ID]))
