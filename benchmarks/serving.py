"""Latency and throughput of `dayahead serve`, beside a plain service of Transformers4Rec's model.

GPT-2/clm at d 128, 2 layers, 4 heads, over 20,000 items, with random weights. Clients
ask one session after another, each on a connection of its own, from this process on
the same cores. Both services have one thread for a forward pass; ours answers what waits together,
the plain one has a thread per connection and a pass per request. The floor is one forward pass for
one session, without HTTP, encoding and top k. With `--models` a saved model is measured too.

Then the service is asked while the link to its model is swapped every half second; failed requests
are counted.

Command: make bench-serve
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import torch
from tabulate import tabulate

from dayahead.core.columns import ITEM_ID
from dayahead.core.files import read_json
from dayahead.model.checkpoint import save_model, weights_of
from dayahead.serve.recommender import Recommender
from dayahead.windows.folder import vocabulary_path
from history import HISTORY, Figure, record
from http_load import Load, apply_load
from measurement import print_header, seconds
from peers import ENVIRONMENTS
from recommend import N_ITEMS, recommender

CLIENTS = (1, 8, 64)
SIZES = {"d_model": 128, "n_layer": 2, "n_head": 4}
LONGEST = 20
TOP_K = 10
WARM_UP = 100
SWAP_SECONDS = 0.5
HERE = Path(__file__).parent
PEER = ENVIRONMENTS / "transformers4rec" / "bin" / "python"
SERVE = [sys.executable, "-m", "dayahead", "serve", "--port", "0"]


@contextmanager
def running(command: Sequence[str | Path]) -> Iterator[int]:
    """Start a service; return its port, and end it afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            if found is None:
                raise SystemExit(f"{command[0]}: the service did not start")
            yield int(found[1])
        finally:
            process.terminate()


def requests(items: Sequence[int], n: int) -> list[dict[str, Any]]:
    """Return sessions of 1 to 9 items."""
    draw = random.Random(1)  # noqa: S311
    return [
        {"session": draw.choices(items, k=draw.randint(1, 9)), "top_k": TOP_K} for _ in range(n)
    ]


def measure(port: int, items: Sequence[int], n_requests: int) -> dict[int, Load]:
    """Return the load of each number of clients, after some requests to warm up."""
    asyncio.run(apply_load(port, requests(items, WARM_UP), 8))
    asked = requests(items, n_requests)
    return {n: asyncio.run(apply_load(port, asked, n)) for n in CLIENTS}


def floor(model: Recommender, n_rounds: int = 200) -> float:
    """Return the median seconds of a forward pass and the scores of one session."""
    stored = model.stored
    torch.set_num_threads(1)
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    columns = {ITEM_ID: torch.randint(2, 1000, (1, 5))}
    return statistics.median(
        seconds(lambda: scorer(columns, torch.tensor([5]))) for _ in range(n_rounds)
    )


def peer_settings() -> str:
    """Return what Transformers4Rec's model is built from."""
    return json.dumps(
        {**SIZES, "n_items": N_ITEMS, "longest": LONGEST, "architecture": "gpt2", "task": "clm",
         "dropout": 0.0, "threads": 1}
    )  # fmt: skip


def swap_under_load(folder: Path, items: Sequence[int], n_requests: int) -> tuple[Load, int]:
    """Ask with 64 clients while two models replace each other; return load and versions seen."""
    for name in ("a", "b"):
        shutil.copytree(folder, folder.parent / "published" / name)
    link = folder.parent / "published" / "current"
    link.symlink_to("a")

    async def swap() -> None:
        while True:
            for name in ("b", "a"):
                await asyncio.sleep(SWAP_SECONDS)
                aside = link.with_name(".next")
                aside.symlink_to(name)
                aside.replace(link)

    command = [*SERVE, "--published", link.parent, "--reload-seconds", "0.1"]
    with running(command) as port:
        asked = requests(items, n_requests)
        load = asyncio.run(apply_load(port, asked, 64, lambda a: a["model"]["version"], swap))
    versions = load.answers
    return load, sum(one != other for one, other in pairwise(versions))


def table_of(
    loads: dict[str, dict[int, Load]],
) -> tuple[list[dict[str, object]], dict[str, Figure]]:
    """Return rows to print, and the figures for the history."""
    rows, figures = [], {}
    for name, by_clients in loads.items():
        for clients, load in by_clients.items():
            p50, p99 = (1000 * load.percentile(share) for share in (0.5, 0.99))
            figures[f"{name}, {clients} clients, p50"] = Figure(p50, "ms")
            figures[f"{name}, {clients} clients, p99"] = Figure(p99, "ms")
            figures[f"{name}, {clients} clients"] = Figure(load.rate, "requests/s")
            rows.append(
                {"service": name, "clients": clients, "p50 ms": f"{p50:.1f}",
                 "p99 ms": f"{p99:.1f}", "requests/s": f"{load.rate:,.0f}",
                 "failed": len(load.failures)}
            )  # fmt: skip
    return rows, figures


def saved_items(folder: Path) -> list[int]:
    """Return the item ids of a saved model."""
    found: list[int] = pq.read_table(vocabulary_path(folder, ITEM_ID))["value"].to_pylist()
    return found


def measure_services(
    folder: Path, models: Path | None, n_requests: int
) -> dict[str, dict[int, Load]]:
    """Return the loads of our service, of the peer's if it is set up, and of a saved model."""
    loads, items = {}, saved_items(folder)
    with running([*SERVE, "--models", folder]) as port:
        loads["dayahead serve, gpt2"] = measure(port, items, n_requests)
    if PEER.exists():
        with running([PEER, HERE / "transformers4rec_server.py", peer_settings()]) as port:
            loads["transformers4rec, plain"] = measure(port, items, n_requests)
    else:
        print(f"{PEER} is missing: run `make bench-peers` once to compare")
    if models is not None:
        saved = read_json(models / "config.json")["model"]
        with running([*SERVE, "--models", models]) as port:
            name = f"dayahead serve, {saved['architecture']} {saved['network']}"
            loads[name] = measure(port, saved_items(models), n_requests)
    return loads


def main(words: Sequence[str] | None = None, history: Path = HISTORY) -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="Measure dayahead serve.")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--swapped-requests", type=int, default=10_000)
    parser.add_argument("--models", type=Path)
    chosen = parser.parse_args(words)
    print_header()
    model = recommender({}, **SIZES)
    with TemporaryDirectory() as name:
        folder = Path(name) / "models"
        save_model(folder, model.stored, weights_of(model.stored.model))
        rows, figures = table_of(measure_services(folder, chosen.models, chosen.requests))
        pass_ms = 1000 * floor(model)
        print(tabulate(rows, headers="keys", disable_numparse=True))
        print(f"A forward pass and the scores of one session: {pass_ms:.2f} ms", flush=True)
        load, n_swaps = swap_under_load(folder, saved_items(folder), chosen.swapped_requests)
        print(
            f"{len(load.failures)} of {len(load.latencies):,} requests failed over {n_swaps} swaps "
            f"of the model, {load.rate:,.0f} requests/s, p99 {1000 * load.percentile(0.99):.0f} ms"
        )
    settings = {"requests": chosen.requests, "models": bool(chosen.models)}
    record("serving", settings, {**figures, "forward pass": Figure(pass_ms, "ms")}, history)


if __name__ == "__main__":
    main()
