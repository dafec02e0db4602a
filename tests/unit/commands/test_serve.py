"""`dayahead serve` as a process: reloads and ends without a dropped request."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import socket
import sys
import urllib.request
from dataclasses import fields
from importlib import import_module

import pytest
from safetensors.torch import load_file, save
from torch import get_num_threads
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands.serve import _address, _listening
from dayahead.core.errors import ConfigError, exit_with_message
from dayahead.serve.limits import MIB, Limits
from http_load import apply_load
from support.serve_processes import serving
from support.tiny_settings import train_study
from support.waiting import wait_until
from support.window_folders import markov_days, write_window_folder

N_REQUESTS = 400
command = import_module("dayahead.commands.serve")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Three good models and a broken one; `current` is the first."""
    folder = tmp_path_factory.mktemp("published")
    days = markov_days(n_days=2, sessions_per_day=30, n_items=15)
    windows = write_window_folder(folder / "windows", days)
    for name, architecture in (("first", "transitions"), ("second", "gpt2"), ("linear", "slist")):
        sections = {"model": {"architecture": architecture}}
        train_study(windows, folder / name, sections)
        (folder / name / "models").rename(folder / f"{name}-model")
    shutil.copytree(folder / "first-model", folder / "broken-model")
    os.truncate(folder / "broken-model" / "model.safetensors", 64)
    (folder / "current").symlink_to("first-model")
    return folder


def swap(folder, name):
    aside = folder / ".current"
    aside.symlink_to(f"{name}-model")
    aside.replace(folder / "current")


@pytest.fixture
def service(published, tmp_path):
    """The process and its port."""
    options = ["--published", published, "--reload-seconds", "0.1"]
    with (tmp_path / "log").open("w") as log, serving(*options, stderr=log) as running:
        assert running.said.startswith("Model first-model answers on http://")
        yield running.process, running.port


@pytest.mark.slow
def test_models_are_swapped_under_load_and_no_request_fails(published, service, tmp_path):
    process, port = service
    requests = [{"session": [n % 15, (n * 7) % 15], "top_k": 5} for n in range(N_REQUESTS)]

    async def swapping():
        while True:
            for name in ("second", "broken", "first"):
                await asyncio.sleep(0.3)
                swap(published, name)

    async def slowly():
        """Spread the requests over several swaps."""
        found = []
        for start in range(0, N_REQUESTS, 40):
            part = requests[start : start + 40]
            found.append(await apply_load(port, part, 8, lambda answer: answer["model"]["version"]))
            await asyncio.sleep(0.2)
        return found

    async def both():
        beside = asyncio.create_task(swapping())
        found = await slowly()
        beside.cancel()
        return found

    loads = asyncio.run(both())
    assert [failure for load in loads for failure in load.failures] == []
    versions = [version for load in loads for version in load.answers]
    assert len(versions) == N_REQUESTS
    assert {*versions} == {"first-model", "second-model"}
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    log = (tmp_path / "log").read_text()
    assert "WARNING a new model is refused" in log
    assert "INFO model second-model follows" in log
    assert "WARNING model" not in log
    assert "Traceback" not in log
    swap(published, "first")


@pytest.mark.long
def test_sigterm_answers_the_requests_that_have_arrived(service):
    process, port = service
    body = json.dumps({"requests": [{"session": [1, 2], "top_k": 5}] * 300}).encode()
    head = f"POST /recommend/batch HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n"
    head += "content-type: application/json\r\nconnection: close\r\n\r\n"

    async def ask(request):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def n_in_progress():
        text = await ask(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        found = re.search(rb"dayahead_requests_in_progress (\d+)", text)
        return int(found[1]) - 1  # without this one

    async def main():
        asking = [asyncio.create_task(ask(head.encode() + body)) for _ in range(8)]
        # First those that are done, so that none counts twice.
        while sum(each.done() for each in asking) + await n_in_progress() < len(asking):
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*asking)

    for answer in asyncio.run(main()):
        assert answer.startswith(b"HTTP/1.1 200")
        found = json.loads(answer.split(b"\r\n\r\n")[1])["answers"]
        assert [len(each["items"]) for each in found] == [5] * 300
    assert process.wait(60) == 0


def test_answers_wait_for_no_acknowledgement():
    """asyncio turns Nagle's algorithm off, but only if the listening socket names its protocol."""
    no_delays = []

    async def main():
        async def talk(_reader, writer):
            option = socket.IPPROTO_TCP, socket.TCP_NODELAY
            no_delays.append(writer.get_extra_info("socket").getsockopt(*option))
            writer.close()

        with _listening("127.0.0.1", 0) as listening:
            server = await asyncio.start_server(talk, sock=listening)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()
            await writer.wait_closed()
            server.close()
            await server.wait_closed()

    asyncio.run(main())
    assert [bool(each) for each in no_delays] == [True]


def test_an_address_of_ipv6_is_in_brackets():
    assert _address("127.0.0.1", 80) == "127.0.0.1:80"
    assert _address("::1", 80) == "[::1]:80"


def error_of(*options):
    """The message with which the command ends."""
    given = ["serve", "--port", "0", *map(str, options), "--threads", str(get_num_threads())]
    with pytest.raises(SystemExit) as ended, exit_with_message():
        CliRunner().invoke(app, given, catch_exceptions=False)
    return ended.value.code


def test_a_port_in_use_ends_in_one_line(published):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = error_of("--published", published, "--port", port)
    assert message.startswith(f"error: serve: cannot listen on 127.0.0.1:{port}")
    assert "\n" not in message


def test_a_folder_without_a_model_ends_in_one_line(tmp_path):
    message = error_of("--models", tmp_path)
    assert "not a complete model" in message
    assert "\n" not in message


def ask(port, path="/recommend", body=b'{"session": [1, 2, 3]}'):
    """Return the status and the answer of the service, to POST or, without a body, to GET."""
    url = f"http://127.0.0.1:{port}{path}"
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as found:
        return found.status, json.load(found)


@pytest.mark.slow
def test_the_old_model_answers_while_its_folder_is_damaged_and_overwritten(published, tmp_path):
    """Indices beyond their arrays, files that are cut off: `cp` while it serves, and worse."""
    models, log_path = tmp_path / "models", tmp_path / "log"
    shutil.copytree(published / "linear-model", models)
    tensors = models / "model.safetensors"
    whole, content = tensors.read_bytes(), load_file(tensors)
    content["weights.gram.indices"][:] = 2**31 - 1
    options = ["--models", models, "--reload-seconds", "0.1"]
    with log_path.open("w") as log, serving(*options, stderr=log) as (_, port, _):
        wanted = ask(port)
        tensors.write_bytes(save(content))  # in place, as all that follows
        wait_until(lambda: "gram.indices: expected values" in log_path.read_text())
        assert ask(port) == wanted
        for size in (len(whole) // 2, 100, 0):
            tensors.write_bytes(whole[:size])
            assert ask(port) == wanted
        wait_until(lambda: "0 bytes" in log_path.read_text())
        for path in sorted((published / "second-model").rglob("*.*")):
            assert ask(port) == wanted
            assert ask(port, "/ready", None)[0] == 200
            (models / path.relative_to(published / "second-model")).write_bytes(path.read_bytes())
        wait_until(lambda: "follows" in log_path.read_text())
        assert ask(port)[1]["model"] != wanted[1]["model"]
    lines = log_path.read_text().splitlines()
    assert "Traceback" not in log_path.read_text()
    assert all(" WARNING " in line or " follows " in line for line in lines), lines


OPTIONS = {
    "--max-body-mib": "2", "--max-sessions": "2", "--max-events": "3", "--max-fields": "4",
    "--max-top-k": "5", "--max-entries": "6", "--max-answer-mib": "7", "--max-waiting": "12",
    "--max-connections": "8", "--request-seconds": "9.5", "--answer-seconds": "10.5",
}  # fmt: skip


def test_every_limit_is_an_option(published, monkeypatch):
    services = []
    monkeypatch.setattr(command, "_run", lambda service, *_: services.append(service))
    monkeypatch.setattr(logging.getLogger("dayahead"), "setLevel", lambda _: None)
    options = ["--published", str(published), "--port", "0", "--threads", str(get_num_threads())]
    for given in OPTIONS.items():
        options += given
    result = CliRunner().invoke(app, ["serve", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert services[0].limits == Limits(
        body_bytes=2 * MIB, sessions=2, events=3, fields=4, top_k=5, entries=6,
        answer_bytes=7 * MIB, waiting=12, connections=8, request_seconds=9.5, answer_seconds=10.5,
    )  # fmt: skip
    assert len(OPTIONS) == len(fields(Limits))


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        ((100, 5_000), [(1_256, 5_000)]),
        ((1_256, 5_000), []),
        ((-1, -1), []),
        ((100, -1), [(1_256, -1)]),
    ],
)
def test_files_are_allowed_for_all_connections(monkeypatch, found, allowed):
    given = []
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: found)
    monkeypatch.setattr(command.resource, "setrlimit", lambda _, limits: given.append(limits))
    command._allow_files(1_000)
    assert given == allowed


def test_more_connections_than_files_may_be_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (100, 1_255))
    with pytest.raises(ConfigError, match="1000 connections need 1256 open files, and 1255"):
        command._allow_files(1_000)


def test_the_package_of_a_redis_log_is_named_where_it_is_missing(published, monkeypatch):
    monkeypatch.setitem(sys.modules, "dayahead.live.redis_log", None)
    message = error_of("--published", published, "--live", "--events-log", "redis://h")
    assert "pip install 'dayahead[redis]'" in message


def test_a_model_without_ticks_is_not_served_live(published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = error_of("--published", published, "--live")
    assert "does not count clicks between two fits" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clock", "events"], "--clock needs --live"),
        (["--keep-hours", "48"], "--keep-hours needs --live"),
        (["--events-log", "events.db"], "--events-log needs --live"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options, message):
    assert message in error_of("--models", "nowhere", *options)
