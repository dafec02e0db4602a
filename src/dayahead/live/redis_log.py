"""The log of events of several services, as a Redis stream that all of them follow."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import redis

from dayahead.core.errors import ConfigError, UnreachableError
from dayahead.core.redaction import redacted
from dayahead.live.clock import Clock
from dayahead.live.event_log import Event, EventLog

STREAM = "dayahead:events"
LATEST = "dayahead:latest"
IDS = "dayahead:ids"
"""Ids of events by time of arrival, by which one that is reported again is found."""
READ_AT_ONCE = 5_000
ANSWER_SECONDS = 2
"""Seconds until a connection, or an answer, is given up."""
SEQUENCE_BITS = 20
"""A position is the stream's milliseconds and, in so many bits, its number within one."""
APPEND = """
local found = {}
local now = redis.call('TIME')[1]
for i = 1, #ARGV, 3 do
    if redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i]) == 1 then
        local latest = redis.call('GET', KEYS[3])
        if not latest or tonumber(latest) < tonumber(ARGV[i + 1]) then
            latest = ARGV[i + 1]
            redis.call('SET', KEYS[3], latest)
        end
        redis.call('XADD', KEYS[1], '*', 'event', ARGV[i + 2], 'latest', latest)
        found[#found + 1] = 1
    else
        found[#found + 1] = 0
    end
end
return found
"""
"""Adds new events, each with the time of the latest one so far, and says which are new."""
log = logging.getLogger(__name__)


class RedisLog(EventLog):
    """Events in a stream; an event arrives when the server adds it, by the server's clock.

    Services that have read the stream up to the same tick have the same state.

    Args:
        url: redis://[:password@]host[:port][/database], or rediss:// over TLS.
        clock: for replays, a clock that follows events; the server's is used instead of another.

    Raises:
        ConfigError: the URL is none.
        UnreachableError: the server does not answer.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__()
        self.url = redacted(url)
        self._clock = clock
        self._position = 0
        """Of the last event delivered."""
        try:
            self._server = redis.Redis.from_url(
                url,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
                decode_responses=True,
            )
            self._append = self._server.register_script(APPEND)
            self._server.ping()
        except ValueError:
            raise ConfigError(
                f"{self.url}: expected redis://:password@host:port/database, with special "
                f"characters of the password percent-encoded"
            ) from None
        except redis.RedisError as error:
            raise UnreachableError(
                f"{self.url}: the Redis server does not answer ({error}); start it, or correct "
                f"--events-log"
            ) from None
        self._warn_if_volatile()

    def _warn_if_volatile(self) -> None:
        try:
            found = self._server.config_get("append*")
        except redis.RedisError:  # a hosted server does not show its settings
            return
        if (found.get("appendonly"), found.get("appendfsync")) != ("yes", "always"):
            log.warning(
                "%s: the server may lose events that were acknowledged; set appendonly yes and "
                "appendfsync always",
                self.url,
            )

    def append(self, events: Sequence[Event]) -> list[bool]:
        """Add events to the stream, and say of each whether it is new.

        Raises:
            OSError: they could not be written. Some may be there: sent again, they count once.
        """
        words = [word for each in events for word in (each.id, each.time, _text(each))]
        with self._as_os_errors():
            found = self._append(keys=[STREAM, IDS, LATEST], args=words)
        return [each == 1 for each in found]

    def complete_until(self) -> int:
        """Deliver what has arrived; return a time before which none will arrive any more."""
        with self._lock, self._as_os_errors():
            seconds, micros = self._server.time()
            for event in self.read(self._position):
                self.deliver([event])
                self._position = event.position
                self._clock.advance(event.arrived)
        # What is added later has no earlier millisecond.
        now = (seconds * 1000 + micros // 1000) * 1000
        return self._clock.now() if self._clock.follows_events else self._clock.advance(now)

    def read(self, after: int = 0) -> Iterator[Event]:
        """Yield the events after a position, in their order."""
        while True:
            with self._as_os_errors():
                entries = self._server.xrange(STREAM, f"({_entry(after)}", "+", READ_AT_ONCE)
            for entry, content in entries:
                event = self._event(entry, **content)
                after = event.position
                yield event
            if len(entries) < READ_AT_ONCE:
                return

    def _event(self, entry: str, event: str, latest: str) -> Event:
        milliseconds, number = map(int, entry.split("-"))
        session, user, time, fields = json.loads(event)
        position = (milliseconds << SEQUENCE_BITS) + number
        arrived = int(latest) if self._clock.follows_events else milliseconds * 1000
        return Event(entry, session, user, time, fields, position, arrived)

    def prune(self, before: int) -> int:
        """Remove the events that arrived before a time; return their number."""
        with self._as_os_errors():
            oldest = max(0, before // 1000)
            self._server.zremrangebyscore(IDS, "-inf", f"({oldest // 1000}")
            return int(self._server.xtrim(STREAM, minid=oldest, approximate=False))

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    @contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            raise OSError(f"{self.url}: {error}") from error


def _entry(position: int) -> str:
    """Return the stream's name of a position."""
    return f"{position >> SEQUENCE_BITS}-{position & (1 << SEQUENCE_BITS) - 1}"


def _text(event: Event) -> str:
    return json.dumps([event.session, event.user, event.time, event.fields])
