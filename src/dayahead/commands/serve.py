"""`dayahead serve`: recommendations over HTTP."""

import logging
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dayahead.core.collector import freeze_and_collect_rarely
from dayahead.core.errors import ConfigError
from dayahead.live.clock import Kind, clock_of
from dayahead.live.event_log import DEFAULT_LOG
from dayahead.serve.limits import MIB, Limits
from dayahead.serve.request import ColdStart

if TYPE_CHECKING:
    from dayahead.live.clock import Clock
    from dayahead.live.event_log import EventLog
    from dayahead.serve.service import NewFeed, Service

DRAIN_SECONDS = 30
BACKLOG = 2048
OTHER_FILES = 256
"""Open files besides connections: those of the model, libraries and the event loop."""
LIVE_OPTIONS = ("events_log", "clock", "keep_hours")
"""Options that only --live reads."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
Models = Annotated[Path | None, typer.Option(help="Folder of the saved model; models/ by default.")]
Published = Annotated[
    Path | None, typer.Option(help="Folder of published models, whose link `current` is served.")
]
Host = Annotated[str, typer.Option(help="Address to listen on; loopback by default.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Cold = Annotated[
    ColdStart,
    typer.Option(help="What answers unknown and empty sessions, for requests that set none."),
]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of the model.")]
ReloadSeconds = Annotated[float, typer.Option(min=0.1, help="How often a new model is looked for.")]
MaxBody = Annotated[int, typer.Option(min=1, help="MiB of a request's body.")]
MaxSessions = Annotated[int, typer.Option(min=1, help="Sessions, or events, of a request.")]
MaxEvents = Annotated[int, typer.Option(min=1, help="Events of a session, and of its past.")]
MaxFields = Annotated[int, typer.Option(min=2, help="Fields of an event.")]
MaxTopK = Annotated[int, typer.Option(min=1, help="Items that a session may ask for.")]
MaxEntries = Annotated[
    int,
    typer.Option(
        min=1, help="Events, top_k, ids in allow and deny: those of all sessions of a request."
    ),
]
MaxAnswer = Annotated[int, typer.Option(min=1, help="MiB of an answer's body.")]
MaxWaiting = Annotated[
    int, typer.Option(min=2, help="Entries that wait for the model, at least twice --max-entries.")
]
MaxConnections = Annotated[int, typer.Option(min=1, help="Connections open at once.")]
RequestSeconds = Annotated[
    float, typer.Option(help="For a client to send a header, and then for the body.")
]
AnswerSeconds = Annotated[float, typer.Option(help="For a client to receive an answer.")]
Live = Annotated[
    bool, typer.Option("--live", help="Take events, and count their clicks between two fits.")
]
EventsLog = Annotated[
    str,
    typer.Option(
        envvar="DAYAHEAD_EVENTS_LOG",
        help="Where events are kept: an SQLite file of this service, or redis://HOST of several.",
    ),
]
ClockKind = Annotated[
    Kind,
    typer.Option(help="What time it is: the machine's, or that of the newest event, for replays."),
]
KeepHours = Annotated[
    int, typer.Option(min=0, help="How long events are kept after they are part of a fit.")
]


def serve(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    models: Models = None,
    published: Published = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    cold_start: Cold = "popularity",
    threads: Threads = 1,
    reload_seconds: ReloadSeconds = 2.0,
    max_body_mib: MaxBody = Limits.body_bytes // MIB,
    max_sessions: MaxSessions = Limits.sessions,
    max_events: MaxEvents = Limits.events,
    max_fields: MaxFields = Limits.fields,
    max_top_k: MaxTopK = Limits.top_k,
    max_entries: MaxEntries = Limits.entries,
    max_answer_mib: MaxAnswer = Limits.answer_bytes // MIB,
    max_waiting: MaxWaiting = Limits.waiting,
    max_connections: MaxConnections = Limits.connections,
    request_seconds: RequestSeconds = Limits.request_seconds,
    answer_seconds: AnswerSeconds = Limits.answer_seconds,
    live: Live = False,
    events_log: EventsLog = DEFAULT_LOG,
    clock: ClockKind = "wall",
    keep_hours: KeepHours = 48,
) -> None:
    """Answer sessions over HTTP, with the newest model; with --live it counts clicks as they come.

    On SIGTERM it finishes the requests in progress.
    """
    from dayahead.serve.model_source import ModelSource
    from dayahead.serve.service import Service

    if not live:
        _reject_given(context)
    limits = _limits(context.params)
    _set_up(limits.connections, threads)
    source = ModelSource.chosen(models, published)
    opened = _feed(events_log, clock_of(clock), keep_hours) if live else nullcontext()
    with _listening(host, port) as listening, opened as feed:
        service = Service(source, cold_start, reload_seconds, limits, feed)
        _run(service, listening, host)


def _reject_given(context: typer.Context) -> None:
    """Raise ConfigError for an option on the command line that does nothing without --live."""
    for name in LIVE_OPTIONS:
        source = context.get_parameter_source(name)  # its type is private to typer
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"serve: {option} needs --live; add it, or leave {option} out")


def _limits(given: Mapping[str, Any]) -> Limits:
    """Return the limits that the options set: `sessions` is --max-sessions."""
    names = ("sessions", "events", "fields", "top_k", "entries", "waiting", "connections")
    return Limits(
        body_bytes=given["max_body_mib"] * MIB,
        answer_bytes=given["max_answer_mib"] * MIB,
        request_seconds=given["request_seconds"],
        answer_seconds=given["answer_seconds"],
        **{name: given[f"max_{name}"] for name in names},
    )


@contextmanager
def _feed(events_log: str, time: "Clock", keep_hours: int) -> Iterator["NewFeed"]:
    """Open the event log; yield a factory of live feeds that read it."""
    from dayahead.serve.live_feed import LiveFeed

    with closing(_event_log(events_log, time)) as events:
        yield partial(LiveFeed, events, time, 3600 * keep_hours)


def _event_log(place: str, clock: "Clock") -> "EventLog":
    if not place.lower().startswith(("redis://", "rediss://")):
        from dayahead.live.sqlite_log import SqliteLog

        return SqliteLog(Path(place), clock)
    try:
        from dayahead.live.redis_log import RedisLog
    except ImportError:
        raise ConfigError(
            "serve: a log of events in Redis needs the package redis: pip install 'dayahead[redis]'"
        ) from None
    return RedisLog(place, clock)


def _run(service: "Service", listening: socket.socket, host: str) -> None:
    import uvicorn

    from dayahead.serve.connections import connections_within
    from dayahead.serve.http import create_app

    config = uvicorn.Config(
        create_app(service),
        http=connections_within(service.limits),
        ws="none",
        log_config=None,
        log_level="error",  # clients' mistakes do not belong in the log
        access_log=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    if host not in LOOPBACK:
        logging.warning("all who reach %s may ask: there are no users or passwords", host)
    freeze_and_collect_rarely()
    shown = _address(host, listening.getsockname()[1])
    print(f"Model {service.model.version} answers on http://{shown}", flush=True)
    # After draining, uvicorn raises the signal again; this must not be an exit status of failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.Server(config).run(sockets=[listening])


def _set_up(n_connections: int, threads: int) -> None:
    import torch

    from dayahead.serve.request_ids import add_request_id

    _allow_files(n_connections)
    handler = logging.StreamHandler()
    handler.addFilter(add_request_id)
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s%(request)s",
        handlers=[handler],
    )
    logging.getLogger("dayahead").setLevel(logging.INFO)
    torch.set_num_threads(threads)


def _allow_files(n_connections: int) -> None:
    """Raise the limit of open files to what the connections may need."""
    n_files = n_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and n_files > hard:
        raise ConfigError(
            f"serve: {n_connections} connections need {n_files} open files, and {hard} are "
            f"allowed; raise that limit (ulimit -Hn), or give a smaller --max-connections"
        )
    if soft != resource.RLIM_INFINITY and n_files > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, hard))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before the seconds that a model takes to load."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm (delays of 40 ms) only if the socket names its protocol,
    # which socket.create_server does not.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"serve: cannot listen on {_address(host, port)} ({error}); choose another --host or "
            f"--port"
        ) from None
    return listening
