"""The HTTP service: recommendations, health and metrics."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from dayahead.core.errors import DataError, DayaheadError
from dayahead.core.redaction import utf8
from dayahead.serve.limits import MIB, Limits
from dayahead.serve.messages import (
    NAME_LENGTH,
    Answer,
    Answers,
    BatchRequest,
    EventBatch,
    Failure,
    IngestResult,
    SessionRequest,
    SimilarAnswer,
    SimilarRequest,
    misspelt,
)
from dayahead.serve.metrics import RequestTimer
from dayahead.serve.micro_batches import Overloaded
from dayahead.serve.request_body import JsonRoute, WholeBody
from dayahead.serve.request_ids import HEADER, RequestIds, current
from dayahead.serve.service import Service

N_ERRORS = 5
"""Number of errors of a request that an answer lists."""
NO_OBJECT = (
    "the body is no JSON object; expected {...}, "
    "sent with the header content-type: application/json"
)
NOT_FOUND = "no such path; GET / lists those there are. POST /events needs dayahead serve --live"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_WRITERS: dict[type, TypeAdapter[Any]] = {
    each: TypeAdapter(each) for each in (Answer, SimilarAnswer, Failure, IngestResult)
}
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure} for status in (400, 408, 413, 415, 422, 500, 503)
}


def create_app(service: Service) -> FastAPI:
    """Return the application that answers with a service, while it runs."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    # FastAPI's pages of documentation would load scripts from other hosts.
    app = FastAPI(
        title="Dayahead",
        version=version("dayahead"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    # One large request is read at a time (see JsonRoute).
    app.state.reading = asyncio.Lock()
    app.router.route_class = JsonRoute
    app.add_middleware(WholeBody, limits=service.limits)
    app.add_middleware(RequestTimer, metrics=service.metrics)
    app.add_middleware(RequestIds)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unreadable)
    app.add_exception_handler(DataError, _exceeded)
    app.add_exception_handler(Overloaded, _overloaded)
    app.add_exception_handler(Exception, _failed)
    _add_recommendations(app, service)
    _add_similar(app, service)
    if service.feed is not None:
        _add_events(app, service)
    _add_state(app, service)
    return app


def _add_recommendations(app: FastAPI, service: Service) -> None:
    @app.post("/recommend", response_model=Answer, responses=REFUSED)
    async def recommend(request: SessionRequest) -> Response:
        """Return the most likely next items of a session, best first."""
        [result] = await service.answer([request])
        if isinstance(result, DayaheadError):
            return JSONResponse({"error": str(result)}, 422)
        return _json([result], service.limits)

    @app.post("/recommend/batch", response_model=Answers, responses=REFUSED)
    async def recommend_batch(requests: BatchRequest) -> Response:
        """Answer many sessions; one that cannot be answered has its error instead."""
        results = await service.answer(requests.requests)
        answers = [
            Failure(error=str(each)) if isinstance(each, DayaheadError) else each
            for each in results
        ]
        return _json(answers, service.limits, b'{"answers":[', b"]}")


def _add_similar(app: FastAPI, service: Service) -> None:
    @app.post("/similar", response_model=SimilarAnswer, responses=REFUSED)
    async def similar(request: SimilarRequest) -> Response:
        """Return the items most like one, best first."""
        result = await service.similar(request)
        if isinstance(result, DayaheadError):
            return JSONResponse({"error": str(result)}, 422)
        return _json([result], service.limits)


def _add_events(app: FastAPI, service: Service) -> None:
    @app.post("/events", status_code=202, response_model=IngestResult, responses=REFUSED)
    async def events(batch: EventBatch) -> Response:
        """Take events as they happen; those accepted are on disk, and count from the next tick."""
        try:
            taken = await service.ingest(batch.events)
        except OSError:
            return _later("the events could not be written; send them again")
        except Overloaded:
            return _later("too many events wait to be written; send them again later")
        # Nothing is lost where all are refused, so sending them again would not help.
        is_refused = len(taken.refused) == len(batch.events)
        return _json([taken], service.limits, status=422 if is_refused else 202)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/")
    async def about() -> dict[str, Any]:
        """Say what this is: version, model and endpoints."""
        endpoints = {
            f"{method} {route.path}": route.description.partition("\n")[0]
            for route in app.routes
            if isinstance(route, APIRoute)
            for method in sorted(route.methods or ())
        }
        return {
            "name": "dayahead",
            "version": version("dayahead"),
            "model": service.about,
            "endpoints": endpoints | {"GET /openapi.json": "Fields and types of all of these."},
        }

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Say that the process lives."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> Response:
        """Say whether requests are answered, and with which model."""
        return JSONResponse(
            {"ready": service.is_ready, "model": service.about}, 200 if service.is_ready else 503
        )

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return counters for Prometheus."""
        return Response(service.metrics.text(), media_type=PROMETHEUS)


def _json(
    answers: Sequence[Answer | SimilarAnswer | Failure | IngestResult],
    limits: Limits,
    begin: bytes = b"",
    end: bytes = b"",
    *,
    status: int = 200,
) -> Response:
    texts, n_bytes = [], 0
    for each in answers:
        texts.append(_WRITERS[type(each)].dump_json(each, exclude_none=True))
        n_bytes += len(texts[-1])
        if n_bytes > limits.answer_bytes:
            raise DataError(
                f"the answer is larger than {limits.answer_bytes / MIB:.3g} MiB (dayahead serve "
                f"--max-answer-mib); ask for fewer sessions, or a smaller top_k"
            )
    return Response(begin + b",".join(texts) + end, status, media_type="application/json")


async def _invalid(_request: Request, error: Exception) -> Response:
    """List the errors of a request, without repeating its values."""
    assert isinstance(error, RequestValidationError)
    found = [_fault(each) for each in error.errors()]
    more = f"; and {len(found) - N_ERRORS} more" if len(found) > N_ERRORS else ""
    # The name of a field may be no valid text.
    return JSONResponse({"error": utf8("; ".join(found[:N_ERRORS])) + more}, 422)


def _fault(found: Mapping[str, Any]) -> str:
    if found["type"] == "json_invalid":
        return f"the body is not valid JSON (character {found['loc'][-1]})"
    if found["loc"] == ("body",) and found["type"] == "model_attributes_type":
        return NO_OBJECT
    parts = found["loc"][found["loc"][0] == "body" :]
    where = ".".join(str(part)[:NAME_LENGTH] for part in parts)
    said = found["msg"].removeprefix("Value error, ") + misspelt(found)
    return f"{where}: {said}" if where else str(said)


async def _unreadable(_request: Request, error: Exception) -> Response:
    """Answer requests that reach no endpoint: other paths or methods, or unreadable content."""
    assert isinstance(error, HTTPException)
    message = NOT_FOUND if error.status_code == HTTPStatus.NOT_FOUND else error.detail
    return JSONResponse({"error": message}, error.status_code, headers=error.headers)


async def _overloaded(_request: Request, _error: Exception) -> Response:
    return _later("too many sessions wait for the model; ask again later, or start more services")


def _later(message: str) -> Response:
    return JSONResponse({"error": message}, 503, headers={"Retry-After": "1"})


async def _exceeded(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 422)


async def _failed(_request: Request, _error: Exception) -> Response:
    """Answer where the service fails; its log has the traceback."""
    message = "the service failed; its log says where"
    # Middleware does not see this answer.
    return JSONResponse({"error": message}, 500, headers={HEADER: current.get()})
