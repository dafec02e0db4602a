"""Grouping by session: NVTabular's own operators, ours, and Polars by hand, to the same tables.

A log becomes sessions in parquet: items and categories to numbers, the logarithm of the price
standardised, events grouped by session in order of time, lists cut to 20. A file of the log holds
whole sessions, 0.5 M events, and is a Dask partition. Measured from the log's files to files of
sessions (fit and transform), on a cluster of two workers with a thread each, started beforehand;
Polars has two threads. The tables are asserted equal: items and categories by what their numbers
stand for, prices to 1e-5.

Command: python benchmarks/operators.py [events in millions, of ours and Polars' run alone]
"""

import os

os.environ["POLARS_MAX_THREADS"] = "2"

import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import nvtabular as nvt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client, LocalCluster
from facts import machine_facts
from merlin.io import Dataset
from nvtabular.ops import Categorify, Groupby, ListSlice, LogOp, Normalize

from dayahead.data.grouping import GroupSessions, SliceLists

SESSIONS_PER_FILE = 100_000
EVENTS_PER_SESSION = 5
LONGEST = 20
ROUNDS = 5
CATEGORICAL = ["item_id", "category_id"]
LISTS = [*CATEGORICAL, "price", "event_time"]
START = 1_569_888_000_000_000
DAY = 86_400_000_000
"""Microseconds."""

Pipeline = Callable[[list[Path], Path], dict[str, pa.Array]]
"""Files of the log into a folder of parquet; returns the values its numbers stand for."""


def write_log(folder: Path, millions: float) -> list[Path]:
    """Write events in order of time, 0.5 M to a file, the sessions of a file in no other."""
    shares = 1 / np.arange(1, 50_001)
    category = np.random.default_rng(0).integers(0, 600, len(shares)) * 9_973
    paths = []
    for number in range(round(millions * 1_000_000 / EVENTS_PER_SESSION / SESSIONS_PER_FILE)):
        rng = np.random.default_rng([1, number])
        lengths = rng.geometric(1 / EVENTS_PER_SESSION, SESSIONS_PER_FILE)
        session = np.repeat(rng.permutation(SESSIONS_PER_FILE), lengths)
        n = len(session)
        starts = START + number * DAY + rng.integers(0, DAY, SESSIONS_PER_FILE)
        times = starts[session] + rng.integers(0, DAY // 24, n)
        times, order = np.unique(times, return_index=True)  # NVTabular's sort is not stable
        items = rng.choice(len(shares), len(times), p=shares / shares.sum())
        table = pa.table(
            {
                "session_id": session[order] + number * SESSIONS_PER_FILE,
                "event_time": times,
                "item_id": 1_000_978 + 37 * items,
                "category_id": category[items],
                "price": np.round(rng.lognormal(4.5, 1, len(times)), 2),
            }
        )
        paths.append(folder / f"events-{number:05d}.parquet")
        pq.write_table(table, paths[-1])
    return paths


def workflow(group: type[Groupby], cut: type[ListSlice], folder: Path) -> nvt.Workflow:
    """The graph, with the operators asked for; `folder` takes the categories."""
    events = (CATEGORICAL >> Categorify(out_path=str(folder))) + (["price"] >> LogOp() >> Normalize())
    sessions = (["session_id", "event_time"] + events) >> group(
        groupby_cols=["session_id"], sort_cols=["event_time"], aggs={name: ["list"] for name in LISTS}
    )
    lists = [f"{name}_list" for name in LISTS]
    return nvt.Workflow(sessions["session_id"] + (sessions[lists] >> cut(LONGEST)))


def by_nvtabular(group: type[Groupby], cut: type[ListSlice]) -> Pipeline:
    """A pipeline of NVTabular's."""

    def run(paths: list[Path], folder: Path) -> dict[str, pa.Array]:
        graph = workflow(group, cut, folder)
        dataset = Dataset([str(path) for path in paths], engine="parquet")
        graph.fit(dataset)
        graph.transform(dataset).to_parquet(str(folder / "sessions"))
        return {name: _categories(folder, name) for name in CATEGORICAL}

    return run


def _categories(folder: Path, name: str) -> pa.Array:
    """What Categorify's numbers stand for: 3 is the first value of its file."""
    values = pq.read_table(folder / "categories" / f"unique.{name}.parquet")[name]
    return pa.concat_arrays([pa.nulls(3, values.type), values.combine_chunks()])


def by_polars(paths: list[Path], folder: Path) -> dict[str, pa.Array]:
    """The pipeline by hand."""
    events = pl.scan_parquet(paths)
    logs = pl.col("price").log1p()
    counts = [
        events.group_by(name).len().sort("len", descending=True).with_row_index("index", 3)
        for name in CATEGORICAL
    ]
    *vocabularies, numbers = pl.collect_all([*counts, events.select(logs.mean(), std=logs.std())])
    mean, std = numbers.row(0)
    for name, vocabulary in zip(CATEGORICAL, vocabularies, strict=True):
        index = vocabulary.lazy().select(name, pl.col("index").alias(f"{name}_index"))
        events = events.join(index, on=name, how="left").drop(name)
        events = events.rename({f"{name}_index": name})
    sessions = (
        events.with_columns(((logs - mean) / std).cast(pl.Float32))
        .sort("event_time")
        .group_by("session_id")
        .agg(pl.col(LISTS).head(LONGEST))
    )
    (folder / "sessions").mkdir()
    sessions.collect().write_parquet(folder / "sessions" / "part.parquet")
    return {
        name: pa.concat_arrays([pa.nulls(3, pa.int64()), vocabulary[name].to_arrow()])
        for name, vocabulary in zip(CATEGORICAL, vocabularies, strict=True)
    }


def sessions_of(folder: Path, values: dict[str, pa.Array]) -> pa.Table:
    """The sessions written, by id, with the values in place of their numbers."""
    files = sorted((folder / "sessions").glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    table = table.rename_columns([name.removesuffix("_list") for name in table.column_names])
    table = table.sort_by("session_id").combine_chunks()
    columns = {"session_id": table["session_id"].cast(pa.int64())}
    for name in LISTS:
        lists = table[name].combine_chunks()
        flat = lists.flatten()
        columns[f"{name} length"] = pc.list_value_length(lists).cast(pa.int64())
        columns[name] = values[name].take(flat.cast(pa.int64())) if name in values else flat
    return columns


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse tables that differ, in anything but the last digits of a price."""
    for name, column in expected.items():
        if name == "price":
            assert np.allclose(found[name], column, rtol=1e-5, atol=1e-5), name
        else:
            assert found[name].equals(column), name


def timed(pipeline: Pipeline, paths: list[Path], folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of one run, and what it wrote."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    start = time.perf_counter()
    values = pipeline(paths, folder)
    seconds = time.perf_counter() - start
    return seconds, sessions_of(folder, values)
