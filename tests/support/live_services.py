"""Services that take events, in this process."""

from contextlib import contextmanager

from starlette.testclient import TestClient

from dayahead.commands.serve import _event_log
from dayahead.live.clock import EventClock
from dayahead.serve.http import create_app
from dayahead.serve.limits import Limits
from dayahead.serve.live_feed import LiveFeed
from dayahead.serve.model_source import ModelSource
from dayahead.serve.service import Service

LIMITS = Limits()
KEEP_SECONDS = 3600.0


class LiveClient:
    """A client of a service with its log."""

    def __init__(self, client, service, log):
        self.client, self.service, self.log = client, service, log

    def send(self, *events):
        answer = self.client.post("/events", json={"events": list(events)})
        return answer.status_code, answer.json()

    def ask(self, session, **more):
        answer = self.client.post("/recommend", json={"session_id": session, **more})
        return answer.status_code, answer.json()

    def items(self, session, **more):
        """Items and scores of an answer."""
        _, answer = self.ask(session, **more)
        return [(each["item"], each["score"]) for each in answer["items"]]


@contextmanager
def live_client(models, log, clock=None, *, limits=LIMITS, reload_seconds=1000):
    """Serve a model; the log is a path, or the URL of a Redis server."""
    clock = clock or EventClock()
    events = _event_log(str(log), clock)

    def feed(metrics):
        return LiveFeed(events, clock, KEEP_SECONDS, metrics)

    try:
        service = Service(ModelSource(models), "popularity", reload_seconds, limits, feed)
        with TestClient(create_app(service)) as client:
            yield LiveClient(client, service, events)
    finally:
        events.close()
