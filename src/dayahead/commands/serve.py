"""`dayahead serve`: recommendations over HTTP."""

import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from dayahead.core.errors import ConfigError
from dayahead.serve.request import ColdStart

DRAIN_SECONDS = 30
BACKLOG = 2048
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


def serve(  # noqa: PLR0913, PLR0917
    models: Models = None,
    published: Published = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    cold_start: Cold = "popularity",
    threads: Threads = 1,
    reload_seconds: ReloadSeconds = 2.0,
) -> None:
    """Answer sessions over HTTP, with the newest model.

    On SIGTERM it finishes the requests in progress.
    """
    import torch
    import uvicorn

    from dayahead.serve.http import create_app
    from dayahead.serve.live_model import ModelSource
    from dayahead.serve.service import Service

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    torch.set_num_threads(threads)
    source = ModelSource.chosen(models, published)
    with _listening(host, port) as listening:
        service = Service(source, cold_start, reload_seconds)
        config = uvicorn.Config(
            create_app(service),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        if host not in LOOPBACK:
            logging.warning("all who reach %s may ask: there are no users or passwords", host)
        shown = _address(host, listening.getsockname()[1])
        print(f"Model {service.model.version} answers on http://{shown}", flush=True)
        # uvicorn raises the signal again once it has drained; that is no failure.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(config).run(sockets=[listening])


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before the seconds that a model takes to load."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's delays of 40 ms off; create_server names none.
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
