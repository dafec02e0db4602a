"""Large requests leave the event loop to others for as long as they have held it."""

import asyncio
import itertools
import time
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import AfterValidator, BaseModel

from dayahead.serve.request_body import LARGE_BYTES, JsonRoute

SECONDS = 0.02
"""How long the check of a request takes."""


@pytest.fixture
def checks():
    """Clock times at which the check of each request began and ended."""
    return []


@pytest.fixture
def client(checks):
    def slow(text):
        start = time.perf_counter()
        time.sleep(SECONDS)
        checks.append((start, time.perf_counter()))
        if text[:1] == "x":
            raise ValueError("starts with x")
        return text

    class Body(BaseModel):
        text: Annotated[str, AfterValidator(slow)]

    router = APIRouter(route_class=JsonRoute)

    @router.post("/")
    async def answer(body: Body) -> int:
        await asyncio.sleep(0)
        return len(body.text)

    app = FastAPI()
    app.state.reading = asyncio.Lock()
    app.include_router(router)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://service")


def posted(client, texts):
    async def post():
        async with client:
            return await asyncio.gather(*(client.post("/", json={"text": t}) for t in texts))

    return [response.status_code for response in asyncio.run(post())]


def pauses(checks):
    return [after[0] - before[1] for before, after in itertools.pairwise(sorted(checks))]


@pytest.mark.parametrize("beginning", ["y", "x"], ids=["accepted", "refused"])
def test_after_a_large_request_comes_a_pause_of_the_same_length(client, checks, beginning):
    status = 200 if beginning == "y" else 422
    assert posted(client, [beginning * LARGE_BYTES] * 4) == [status] * 4
    assert min(pauses(checks)) >= SECONDS


def test_small_requests_wait_for_no_large_one(client):
    async def post():
        async with client, client._transport.app.state.reading:
            posts = (client.post("/", json={"text": "y"}) for _ in range(4))
            return await asyncio.wait_for(asyncio.gather(*posts), 60)

    assert [response.status_code for response in asyncio.run(post())] == [200] * 4


def test_a_large_body_that_is_no_json_leaves_the_way_free(client, checks):
    async def post():
        async with client:
            bodies = [b"{" + b" " * LARGE_BYTES, b'{"text": "' + b"y" * LARGE_BYTES + b'"}']
            headers = {"content-type": "application/json"}
            posts = (client.post("/", content=each, headers=headers) for each in bodies)
            return await asyncio.wait_for(asyncio.gather(*posts), 60)

    assert [response.status_code for response in asyncio.run(post())] == [422, 200]
    assert len(checks) == 1
