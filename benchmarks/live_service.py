"""`dayahead serve --live` on a window: is it what was evaluated, how fast, and what a kill costs.

1. The window's clicks are replayed over HTTP, and some of its sessions asked for where they were
   evaluated: the same items, scores within 1e-5 (the study needs evaluation.predictions).
2. Clicks at a rate beside recommendations at another, with ticks of 10 seconds: latencies.
3. The service is killed after each of some clicks: seconds until it answers again, and as before.

    python benchmarks/live_service.py --study FOLDER --windows data/windows --window 2017-10-04

FOLDER has models/ (fitted up to the window before) and results/ of that study.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dayahead.core.columns import SESSION_ID
from dayahead.core.files import read_json, write_json
from dayahead.windows.folder import WindowFolder
from http_load import Load, post
from measurement import print_header
from replay import AT_ONCE, Client, clicks_of

SERVE = [sys.executable, "-m", "dayahead", "serve", "--port", "0", "--live", "--clock", "events"]
FAST_TICK = "10s"
Clicks = list[dict[str, Any]]


@contextmanager
def running(*options: str | Path, **popen: Any) -> Iterator[tuple[int, subprocess.Popen[str]]]:  # noqa: ANN401
    """Start a service; yield its port and process, and end it afterwards."""
    command = [*SERVE, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **popen) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "http://" not in line:
                raise SystemExit("the service did not start")
            yield int(line.rsplit(":", 1)[1]), process
        finally:
            process.terminate()


def compare(port: int, clicks: Clicks, study: Path, window: str, n_asked: int) -> None:
    """Replay a window, and ask for some sessions before their last click."""
    table = pq.read_table(study / "results" / "predictions" / f"{window}.parquet")
    names = table[SESSION_ID].to_pylist()
    chosen = {*random.Random(1).sample(names, min(n_asked, len(names)))}  # noqa: S311
    rows = {name: row for row, name in enumerate(names) if name in chosen}
    lengths: dict[str, int] = {}
    for click in clicks:
        lengths[click["session_id"]] = lengths.get(click["session_id"], 0) + 1
    client, waiting, n_same, largest = Client(port), [], 0, 0.0
    top_k = len(table["items"][0].as_py())
    start = time.perf_counter()
    for click in clicks:
        waiting.append(click)
        session = click["session_id"]
        lengths[session] -= 1
        if session in chosen and lengths[session] == 1:
            client.send(waiting)
            waiting.clear()
            asked = {"session_id": session, "top_k": top_k, "cold_start": "model"}
            answer = client.post("/recommend", asked)
            row = rows[session]
            items = [each["item"] for each in answer["items"]]
            scores = np.array([each["score"] for each in answer["items"]])
            n_same += items == table["items"][row].as_py()
            if len(scores) == top_k:
                gaps = np.abs(scores - np.array(table["scores"][row].as_py()))
                largest = max(largest, float(gaps.max()))
    client.send(waiting)
    seconds = time.perf_counter() - start
    print(
        f"{n_same:,} of {len(chosen):,} sessions have the items of evaluation, scores differ by at "
        f"most {largest:.1e}; {len(clicks):,} clicks in {seconds:.0f} s"
    )


def with_tick(models: Path, folder: Path, tick: str) -> Path:
    """Copy a model, with another tick."""
    copied = Path(shutil.copytree(models, folder))
    config = read_json(copied / "config.json")
    config["live"]["tick"] = tick
    write_json(copied / "config.json", config)
    return copied


def at_rate(clicks: Clicks, rate: float, start: float) -> Clicks:
    """Return the clicks as if they came at a rate, from a time on."""
    return [{**each, "event_time": start + n / rate} for n, each in enumerate(clicks)]


async def load(
    port: int, clicks: Clicks, rate: float, asked_rate: float, seconds: float
) -> tuple[Load, Load]:
    """Send clicks and ask for sessions at two rates; return both loads."""
    part = 50
    n_parts, n_asked = int(rate * seconds / part), int(asked_rate * seconds)
    posted, asked = Load(), Load()
    start = time.perf_counter()

    async def at(when: float, path: str, body: Any, load: Load) -> None:  # noqa: ANN401
        await asyncio.sleep(start + when - time.perf_counter())
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, text = await post(reader, writer, path, json.dumps(body).encode())
        writer.close()
        load.latencies.append(time.perf_counter() - begin)
        if status not in {200, 202}:
            load.failures.append(f"{status} {text[:200]!r}")

    def session_at(when: float) -> str:
        row = min(max(0, int(when * rate) - random.randrange(1000)), len(clicks) - 1)  # noqa: S311
        return str(clicks[row]["session_id"])

    tasks = [
        at(n * part / rate, "/events", {"events": clicks[n * part : (n + 1) * part]}, posted)
        for n in range(n_parts)
    ]
    tasks += [
        at(n / asked_rate, "/recommend", {"session_id": session_at(n / asked_rate)}, asked)
        for n in range(n_asked)
    ]
    await asyncio.gather(*tasks)
    posted.seconds = asked.seconds = time.perf_counter() - start
    return posted, asked


def measure_load(models: Path, clicks: Clicks, folder: Path, rates: Sequence[float]) -> None:
    """Print latencies of both kinds of requests under load."""
    rate, asked_rate, seconds = rates
    fast = with_tick(models, folder / "models", FAST_TICK)
    start = read_json(fast / "config.json")["end"] / 1e6
    timed = at_rate(clicks, rate, start)
    with running("--models", fast, "--events-log", folder / "events.sqlite") as (port, _):
        answers(Client(port), ["warm-up"] * 100)
        posted, asked = asyncio.run(load(port, timed, rate, asked_rate, seconds))
    for name, each, unit in (("/events, 50 each", posted, 50), ("/recommend", asked, 1)):
        p50, p99 = (1000 * each.percentile(share) for share in (0.5, 0.99))
        print(
            f"{name}: {each.rate * unit:,.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
            f"highest {1000 * max(each.latencies):.0f} ms, {len(each.failures)} failed"
        )


def measure_kills(models: Path, clicks: Clicks, folder: Path, n_kills: int) -> None:
    """Kill the service again and again while it takes clicks; compare with one that lives."""
    dice, sent, seconds = random.Random(2), 0, []  # noqa: S311
    sessions = [each["session_id"] for each in clicks[-200:]]
    for number in range(n_kills):
        until = len(clicks) * (number + 1) // n_kills
        begin = time.perf_counter()
        with running("--models", models, "--events-log", folder / "killed.sqlite") as (
            port,
            process,
        ):
            seconds.append(time.perf_counter() - begin)
            client = Client(port)
            # What was not acknowledged is sent again.
            while sent < until:
                part = clicks[sent : sent + AT_ONCE]
                if sent + AT_ONCE >= until and number + 1 < n_kills:
                    client.begin("/events", {"events": part})
                    time.sleep(dice.random() * 0.02)
                    process.send_signal(signal.SIGKILL)
                    break
                client.send(part)
                sent += len(part)
            if number + 1 == n_kills:
                after = answers(client, sessions)
    with running("--models", models, "--events-log", folder / "whole.sqlite") as (port, _):
        client = Client(port)
        client.send(clicks)
        same = answers(client, sessions) == after
    print(
        f"{n_kills} starts, killed in between: {'the same' if same else 'OTHER'} answers as "
        f"without; the last start replayed {len(clicks):,} clicks: {seconds[-1]:.1f} s, the first "
        f"took {seconds[0]:.1f} s"
    )


def answers(client: Client, sessions: Sequence[str]) -> list[Any]:
    """Return the answers to some sessions."""
    return [client.post("/recommend", {"session_id": each})["items"] for each in sessions]


def main() -> None:
    """Compare, measure and print."""
    parser = argparse.ArgumentParser(description="Measure dayahead serve --live.")
    parser.add_argument("--study", type=Path, required=True)
    parser.add_argument("--windows", type=Path, required=True)
    parser.add_argument("--window", required=True)
    parser.add_argument("--asked", type=int, default=5_000)
    parser.add_argument("--events-per-second", type=float, default=2_000)
    parser.add_argument("--asked-per-second", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--killed-clicks", type=int, default=20_000)
    chosen = parser.parse_args()
    print_header()
    clicks = clicks_of(WindowFolder(chosen.windows), chosen.window)
    models = chosen.study / "models"
    with TemporaryDirectory() as name:
        folder = Path(name)
        with running("--models", models, "--events-log", folder / "compared.sqlite") as (port, _):
            compare(port, clicks, chosen.study, chosen.window, chosen.asked)
        rates = chosen.events_per_second, chosen.asked_per_second, chosen.seconds
        measure_load(models, clicks, folder, rates)
        measure_kills(models, clicks[: chosen.killed_clicks], folder, chosen.kills)


if __name__ == "__main__":
    main()
