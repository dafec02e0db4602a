"""Counters of the service for Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SESSIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ENDPOINTS = (
    "/",
    "/recommend",
    "/recommend/batch",
    "/similar",
    "/events",
    "/health",
    "/ready",
    "/metrics",
)


class Metrics:
    """Counters of one service, which start at 0."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "dayahead_requests", "Requests by endpoint and status.", ["endpoint", "status"],
            registry=own,
        )  # fmt: skip
        self.in_progress = Gauge(
            "dayahead_requests_in_progress", "Requests that are being answered.", registry=own
        )
        self.seconds = Histogram(
            "dayahead_request_seconds", "Seconds from request to answer.", ["endpoint"],
            registry=own, buckets=SECONDS,
        )  # fmt: skip
        self.sessions = Counter(
            "dayahead_sessions", "Sessions by what came of them: known, cold, error.", ["result"],
            registry=own,
        )  # fmt: skip
        self.batches = Histogram(
            "dayahead_batch_sessions", "Sessions answered by one pass of the model.",
            registry=own, buckets=SESSIONS,
        )  # fmt: skip
        self.reloads = Counter(
            "dayahead_reloads", "New models: served, refused.", ["result"], registry=own
        )
        self.model = Gauge(
            "dayahead_model", "1 for the model in use.", ["version", "window"], registry=own
        )
        self.events = Counter(
            "dayahead_events", "Events by what came of them: accepted, duplicate, refused.",
            ["result"], registry=own,
        )  # fmt: skip
        self.ticks = Histogram(
            "dayahead_tick_seconds", "Seconds to count the clicks of a tick.",
            registry=own, buckets=SECONDS,
        )  # fmt: skip
        self.clicks = Counter("dayahead_clicks", "Clicks that the model has counted.", registry=own)
        self.counted_until = Gauge(
            "dayahead_counted_until_seconds", "Time up to which clicks are counted, since 1970.",
            registry=own,
        )  # fmt: skip
        self.lag = Gauge(
            "dayahead_event_lag_seconds", "Seconds from the newest event to its arrival.",
            registry=own,
        )  # fmt: skip
        self.live = Gauge(
            "dayahead_live", "What the live model holds: sessions, new_items, pairs.", ["what"],
            registry=own,
        )  # fmt: skip

        # A series that begins with its first event hides that one from Prometheus's increase().
        for counter, results in (
            (self.reloads, ("served", "refused")),
            (self.sessions, ("known", "cold", "error")),
        ):
            for result in results:
                counter.labels(result)

    def set_model(self, version: str, window: str) -> None:
        """Name the model in use."""
        self.model.clear()
        self.model.labels(version, window).set(1)

    def text(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return generate_latest(self.registry)


class RequestTimer:
    """Counts and times the requests of an application by endpoint."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Other paths share one label: clients could otherwise create any number of them.
        path = scope["path"] if scope["path"] in ENDPOINTS else "other"
        try:
            with self._metrics.in_progress.track_inprogress():
                await self._app(scope, receive, sent)
        finally:
            self._metrics.seconds.labels(path).observe(time.perf_counter() - start)
            self._metrics.requests.labels(path, str(status)).inc()
