"""Speed of making sessions from a log: our encoding, and Polars by hand.

Items and categories become numbers, the logarithm of the price is standardised, events are grouped
by session in order of time, lists are cut to 20. A file of the log holds whole sessions, 0.5 M
events, and is a Dask partition. The times are from the log's files to files of sessions (fit and
transform), on a cluster of two workers with a thread each, already started; Polars has two threads.
The tables must be equal: items and categories after decoding, prices to 1e-5.

Command: python -W ignore benchmarks/operators.py
"""

import os

os.environ["POLARS_MAX_THREADS"] = "2"

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask import compute, delayed
from distributed import Client, LocalCluster

from dayahead.core.columns import DAY, EVENT_TIME, N_RESERVED, TIMESTAMP, VALUE
from dayahead.dataset.schema import FeatureConfig
from dayahead.features.arrays import ints, is_new, set_column
from dayahead.features.vocabulary import (
    add_value_counts,
    count_values,
    empty_value_counts,
    vocabulary_of,
)
from dayahead.features.workflow import encode_lists, fit_features
from dayahead.windows.metadata import SessionRules, Statistics
from measurement import print_header, seconds

SESSIONS_PER_FILE = 100_000
EVENTS_PER_SESSION = 5
LONGEST = 20
ROUNDS = 5
CATEGORICAL = ["item_id", "category_id"]
LISTS = [*CATEGORICAL, "price", "event_time"]
START = 1_569_888_000_000_000
"""Microseconds."""

FEATURES = {
    "category_id": FeatureConfig(kind="categorical", column="category_id", type="int"),
    "price": FeatureConfig(kind="log_number", column="price"),
}

SMALL, LARGE = 2, 8
"""Millions of events."""
Pipeline = Callable[[list[Path], Path], dict[str, pa.Array]]
"""Writes the log's files as sessions into a folder; returns the values by index, by column."""


def write_log(folder: Path, millions: float) -> list[Path]:
    """Write events in order of time, 0.5 M to a file; no session is in two files."""
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
        times, order = np.unique(times, return_index=True)
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


def by_ours(paths: list[Path], folder: Path) -> dict[str, pa.Array]:
    """Our encoding, as `preprocess` uses it: files sorted and counted, fitted, encoded as lists."""
    (folder / "sessions").mkdir()
    ordered = {path.stem: folder / path.name for path in paths}
    counts = compute(*[delayed(_sort)(path, folder / path.name) for path in paths])
    vocabularies = {}
    for name in CATEGORICAL:
        found = zip(ordered, [each[name] for each in counts], strict=True)
        total = add_value_counts(empty_value_counts(pa.int64()), list(found))
        vocabularies[name] = vocabulary_of(total)
    fitted = fit_features(FEATURES, ordered, len(ordered), vocabularies)
    rules = SessionRules(
        repeats="keep", min_length=2, max_length=LONGEST, truncate="first", past_max_length=0
    )
    statistics = Statistics(unit="day", timezone="UTC", item_type="int", sessions=rules,
                            fitted_on=list(ordered), features=fitted)  # fmt: skip
    compute(*[delayed(_encode)(path, statistics, vocabularies) for path in ordered.values()])
    return {name: _from(N_RESERVED, table[VALUE]) for name, table in vocabularies.items()}


def _sort(path: Path, target: Path) -> dict[str, pa.Table]:
    """Write a file's events in order of their lists; count its values."""
    events = pq.read_table(path).sort_by([("session_id", "ascending"), (EVENT_TIME, "ascending")])
    events = set_column(events, EVENT_TIME, events[EVENT_TIME].cast(TIMESTAMP))
    events = events.append_column("train", pa.array(np.ones(len(events), bool)))
    pq.write_table(events, target)
    return {name: count_values(events, name) for name in CATEGORICAL}


def _encode(path: Path, statistics: Statistics, vocabularies: dict[str, pa.Table]) -> None:
    """Write the sessions of a file of sorted events."""
    events = pq.read_table(path)
    rows, first = np.arange(len(events)), np.flatnonzero(is_new(ints(events["session_id"])))
    position = rows - np.repeat(first, np.diff(np.append(first, len(events))))
    events = events.filter(pa.array(position < LONGEST))
    first = np.flatnonzero(is_new(ints(events["session_id"])))
    table = encode_lists(events, first, statistics, vocabularies)
    table = set_column(table, EVENT_TIME, table[EVENT_TIME].cast(pa.list_(pa.int64())))
    table = table.append_column("session_id", events["session_id"].take(pa.array(first)))
    pq.write_table(table, path.parent / "sessions" / path.name)


def _from(first: int, values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return values by index, counted from `first` on."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return pa.concat_arrays([pa.nulls(first, values.type), *chunks])


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
        .sort("session_id", "event_time")  # the fastest variant of those tried, lazy and eager
        .group_by("session_id", maintain_order=True)
        .agg(pl.col(LISTS).head(LONGEST))
    )
    (folder / "sessions").mkdir()
    sessions.collect().write_parquet(folder / "sessions" / "part.parquet")
    return {
        name: _from(3, vocabulary[name].to_arrow())
        for name, vocabulary in zip(CATEGORICAL, vocabularies, strict=True)
    }


def sessions_of(folder: Path, values: dict[str, pa.Array]) -> dict[str, Any]:
    """Return the sessions written, by id, with the values instead of their indices."""
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
    """Check that two tables are equal, apart from the last digits of a price."""
    for name, column in expected.items():
        if name == "price":
            assert np.allclose(found[name], column, rtol=1e-5, atol=1e-5), name
        else:
            assert found[name].equals(column), name


def timed(pipeline: Pipeline, paths: list[Path], folder: Path) -> tuple[float, dict[str, Any]]:
    """Return the seconds of one run, and the sessions that it wrote."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    values: dict[str, pa.Array] = {}
    duration = seconds(lambda: values.update(pipeline(paths, folder)))
    return duration, sessions_of(folder, values)


def time_pipelines(
    pipelines: Mapping[str, Pipeline], n: int, millions: float, root: Path
) -> dict[str, float]:
    """Time pipelines in turns; check their tables, print and return their median seconds."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "log").mkdir(parents=True)
    paths = write_log(root / "log", millions)
    times: dict[str, list[float]] = {name: [] for name in pipelines}
    tables: dict[str, dict[str, Any]] = {}
    for _ in range(n):
        for name, pipeline in pipelines.items():
            duration, tables[name] = timed(pipeline, paths, root / "work")
            times[name].append(duration)
    expected = tables.popitem()[1]
    for found in tables.values():
        assert_equal(found, expected)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(
            f"{millions:3.1f} M events, {len(expected['session_id']):,} sessions: {name:10s} "
            f"{median:7.2f} s (median of {n}), {millions / median:5.2f} M events/s"
        )
    return medians


def main() -> None:
    """Measure and print."""
    print_header()
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**options) as cluster,
        Client(cluster),
    ):
        root = Path(folder)
        fast = {"ours": by_ours, "Polars": by_polars}
        time_pipelines(fast, 1, 0.5, root)  # warm-up
        time_pipelines(fast, ROUNDS, SMALL, root)
        large = time_pipelines(fast, ROUNDS, LARGE, root)
        print(f"ratio at {LARGE} M events: ours / Polars {large['ours'] / large['Polars']:.2f}")


if __name__ == "__main__":
    main()
