"""Seconds of fit and evaluation, and peak memory, of one window of 20 million sessions.

Sessions are drawn at random in REES46's shape: 166,794 items by Zipf's law, 2 to 20 clicks, 4.6 on
average. They are read by `stream`. Each model is fitted on them and evaluated on 10,000 sessions
of the next window, in a process of its own. Networks make STEPS steps: their memory does not depend
on how many.

Command: python benchmarks/large_window.py [--sessions 20000000] [--models gpt2 vstan] [--threads 2]
"""

import argparse
import os
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.config.loading import read_yaml, validated
from dayahead.config.params import Params
from dayahead.config.sections import merged
from dayahead.core.columns import (
    DAY,
    EVENT_TIME,
    ITEM_ID,
    N_RESERVED,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.files import ROWS_PER_GROUP, write_json, write_parquet
from dayahead.core.phases import Stopwatch
from dayahead.train.stage import train
from dayahead.train.study import Study
from dayahead.windows.folder import MANIFEST, STATISTICS, vocabulary_path, window_path
from dayahead.windows.metadata import SessionRules, Statistics, WindowEntry, WindowsManifest
from measurement import print_header

START = datetime(2019, 10, 1, tzinfo=UTC)
N_ITEMS, MAX_LENGTH = 166_794, 20
EVALUATED = 10_000
STEPS = 100
MODELS: dict[str, dict[str, Any]] = {
    "popularity": {"model.architecture": "popularity"},
    "transitions": {"model.architecture": "transitions"},
    "vstan": {"model.architecture": "vstan"},
    "gpt2": {"model.architecture": "gpt2"},
    "memory without network": {"model.architecture": "memory", "model.network": "none"},
    "memory with gpt2": {"model.architecture": "memory", "model.network": "gpt2"},
}
SETTINGS = {
    "training.loader": "stream",
    "training.steps_per_window": STEPS,
    "evaluation.split": "test",
    "compute.processes": 1,
    "compute.device": "cpu",
    "tracking.log_model": False,
}


def sessions(rng: np.random.Generator, day: int, first: int, n: int) -> pa.Table:
    """Return `n` sessions of a day, as a window file holds them; `first` numbers them."""
    lengths = np.clip(1 + rng.lognormal(1.15, 0.75, n).astype(np.int64), 2, MAX_LENGTH)
    offsets = np.append(0, np.cumsum(lengths))
    shares = np.cumsum(1 / np.arange(1, N_ITEMS + 1))
    items = np.searchsorted(shares / shares[-1], rng.random(offsets[-1])) + N_RESERVED
    begin = int(START.timestamp()) * 1_000_000 + day * DAY
    starts = begin + np.sort(rng.integers(0, DAY * 9 // 10, n))
    steps = np.arange(offsets[-1]) - offsets[:-1].repeat(lengths)
    times = pa.array(starts.repeat(lengths) + steps * 20_000_000).cast(TIMESTAMP)
    rows = pa.array(offsets.astype(np.int32))
    names = pa.array(np.arange(first, first + n)).cast(pa.string())
    return pa.table(
        {
            SESSION_ID: names,
            USER_ID: pa.nulls(n, pa.string()),
            SESSION_START: pa.array(starts).cast(TIMESTAMP),
            ITEM_ID: pa.ListArray.from_arrays(rows, pa.array(items.astype(np.int32))),
            EVENT_TIME: pa.ListArray.from_arrays(rows, times),
        }
    )


def write_windows(folder: Path, n_sessions: int) -> None:
    """Write two windows: one to fit on, and a small one to evaluate on."""
    entries = [_write_day(folder, day, n) for day, n in enumerate([n_sessions, EVALUATED])]
    first = entries[0].window
    vocabulary = pa.table(
        {
            "index": pa.array(np.arange(N_ITEMS, dtype=np.int32) + N_RESERVED),
            "value": pa.array(np.arange(N_ITEMS)),
            "first_window": pa.array([first] * N_ITEMS),
            "first_time": pa.array([START] * N_ITEMS, TIMESTAMP),
            "events": pa.array(np.ones(N_ITEMS, np.int64)),
        }
    )
    write_parquet(vocabulary_path(folder, ITEM_ID), vocabulary)
    n = sum(entry.sessions for entry in entries)
    end = entries[-1].end
    manifest = WindowsManifest(
        unit="day", log_end=end, sessions_read=n, sessions_kept=n, steps={}, windows=entries
    )
    write_json(folder / MANIFEST, manifest.as_json())
    rules = SessionRules(
        repeats="keep", min_length=2, max_length=MAX_LENGTH, truncate="last", past_max_length=0
    )
    statistics = Statistics(
        unit="day", timezone="UTC", item_type="int", sessions=rules, fitted_on=[first], features={}
    )
    write_json(folder / STATISTICS, statistics.as_json())


def _write_day(folder: Path, day: int, n_sessions: int) -> WindowEntry:
    rng = np.random.default_rng(day)
    start = START + timedelta(days=day)
    name = start.date().isoformat()
    roles = {"train": n_sessions, "valid": min(n_sessions, EVALUATED), "test": EVALUATED}
    for role, n in roles.items():
        path = window_path(folder, "day", name, role)
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = sessions(rng, day, 0, 1).schema
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for first in range(0, n, 1 << 20):
                part = sessions(rng, day, first, min(1 << 20, n - first))
                writer.write_table(part, row_group_size=ROWS_PER_GROUP)
    return WindowEntry(
        window=name,
        start=start.isoformat(),
        end=(start + timedelta(days=1)).isoformat(),
        sessions=n_sessions,
        events=n_sessions * 4,
        state="kept",
        why=None,
        roles=roles,
        overrun_events=0,
    )


def measure(model: str, windows: Path, threads: int) -> tuple[float, float, float]:
    """Return the seconds of fit and evaluation in this process, and its peak memory in GiB."""
    project = read_yaml(Path(__file__).parents[1] / "params.yaml")
    settings = SETTINGS | MODELS[model] | {"compute.threads": threads}
    params = validated(Params, merged(project, settings), "params.yaml")
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, watch.running():
        results, models, cache = (Path(folder) / name for name in ("results", "models", "cache"))
        train(Study(params=params, windows=windows, results=results, models=models, cache=cache))
    seconds = {row.phase: row.seconds for row in watch.rows()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return seconds["fit"], seconds["evaluate"], peak


def main() -> None:
    """Measure every model, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    print_header()
    with tempfile.TemporaryDirectory() as folder:
        windows = Path(folder)
        write_windows(windows, options.sessions)
        size = sum(path.stat().st_size for path in windows.rglob("*.parquet"))
        print(f"{options.sessions:,} sessions, {size / 2**30:.2f} GiB of parquet")
        for model in options.models:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                found = pool.submit(measure, model, windows, options.threads).result()
            fit, evaluation, peak = found
            print(
                f"{model:<22} fit {fit:>7.1f} s, evaluation {evaluation:>6.1f} s, {peak:>5.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
