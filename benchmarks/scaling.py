"""Stages on logs of REES46's shape: a whole month, how cost grows, the cost of another day.

All but `windows` run `preprocess` alone.

month      42 M events in one source file: events/s, peak memory of all processes
months     25, 50 and 200 M events, a source file per day: time, memory and disk, and what a line
           through the first two predicts for the third; 20 minutes and 11 GB of disk
curve      1, 2, 4 and 8 M events, days of one size: time and memory per event
windows    about 100, 2,000 and 10,000 hours of 15 sessions each: time per window of `preprocess`
           and, for the first two, of `train` (transitions, all sessions evaluated) and `aggregate`
extension  15 days, then one more with those in the cache: at most T0 + 1.3 (T15 - T0) / 15, where
           T0 is a log of one tiny day and T15 all 15 without a cache; no earlier window's file
           changes

Settings are those of params.yaml and datasets/rees46.yaml. Each run has a process of its own, timed
with the start of the Dask cluster but without Python's imports. The lower limit is the unavoidable
work on every core: reading each row, sorting by session, writing the windows' files.

Command: python -W ignore benchmarks/scaling.py [month] [months] [curve] [windows] [extension]
"""

import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.aggregate.findings import Folders
from dayahead.aggregate.stage import aggregate
from dayahead.config.params import Params, flat_settings, load_params
from dayahead.core.columns import EVENT_TIME, INDEX, ROW, SESSION_ID, VALUE
from dayahead.core.fingerprints import sha256_of
from dayahead.preprocess.stage import preprocess
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.stage import train
from dayahead.train.study import Study
from generated_log import Shape, rees46, shape_of, write_days, write_month
from measurement import peak_memory, print_header, seconds
from scratch_project import PROJECT

CURVE = {4: 1_000_000, 8: 2_000_000, 16: 4_000_000, 32: 8_000_000}
"""Events by days."""
HOURS, SESSIONS_PER_HOUR = (96, 2_016, 10_008), 15
MONTHS = 18, 37, 147
"""Days of each log, as long as those of REES46."""
TINY = Shape(days=1, sessions_per_day=200)
DAYS, SESSIONS_PER_DAY, ROUNDS = 15, 100_000, 5
MEMORY_LIMIT, ALLOWED = 6.0, 1.3
"""GiB; largest cost of another day, as a share of one day's."""


@dataclass(frozen=True)
class Run:
    """Cost of a run."""

    seconds: float
    gib: float
    """Peak of all processes together."""


def measure(raw: Path, root: Path, **window: str | int) -> Run:
    """Preprocess `raw` into root/windows, in a process of its own, with the cache of `root`."""
    return apart(_preprocess, raw, root, window)


def apart(work: Callable[..., Run], *arguments: object) -> Run:
    """Run in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(work, *arguments).result()


def _timed(work: Callable[[], object]) -> Run:
    with peak_memory() as peak:
        duration = seconds(work)
    return Run(duration, peak.gib)


def _preprocess(raw: Path, root: Path, window: Mapping[str, str | int]) -> Run:
    os.environ["DVC_ROOT"] = str(root)
    params = load_params(PROJECT / "params.yaml")
    return _timed(
        lambda: preprocess(
            raw=raw,
            folder=root / "windows",
            dataset=rees46(),
            window=replace(params.window, **window),
            config=params.preprocess,
            machine=params.machine,
        )
    )


def _train(root: Path) -> Run:
    os.environ["DVC_ROOT"] = str(root)
    params = _params_of_train()
    study = Study(params=params, windows=root / "windows", results=root / "results",
                  models=root / "models")  # fmt: skip
    run = _timed(lambda: train(study))
    train_baselines(study)  # for the report
    return run


def _params_of_train() -> Params:
    params = load_params(PROJECT / "params.yaml")
    return replace(
        params,
        model=replace(params.model, architecture="transitions"),
        evaluation=replace(params.evaluation, split="all"),
    )


def _aggregate(root: Path, raw: Path) -> Run:
    params = _params_of_train()
    folders = Folders(root / "results", root / "windows", raw)
    return _timed(lambda: aggregate(folders, params.evaluation.cutoffs, flat_settings(params)))


def lower_limit(raw: Path, windows: Path) -> float:
    """Return core-seconds to read the log, sort it by session and write the windows' files."""
    pa.set_cpu_count(1)
    start = time.process_time()
    for path in sorted(raw.glob("*.parquet")):
        part = pq.read_table(path)
        sessions = part[SESSION_ID].combine_chunks().dictionary_encode().indices
        np.lexsort((part[ROW], part[EVENT_TIME].cast(pa.int64()), sessions))
    total = time.process_time() - start
    for path in sorted(windows.glob("*.parquet")):
        table = pq.read_table(path)
        start = time.process_time()
        pq.write_table(table, windows.with_name("copy.parquet"), compression="zstd")
        total += time.process_time() - start
    return total


def month(root: Path) -> None:
    """Preprocess 42 M events."""
    n_events = write_month(root / "raw", Shape())
    run = measure(root / "raw", root / "run")
    print(
        f"month: {n_events:,} events in {run.seconds:.1f} s, {n_events / run.seconds:,.0f} events/s"
    )
    print(f"       peak memory {run.gib:.2f} GiB (limit {MEMORY_LIMIT:.0f})")
    least = lower_limit(root / "raw", root / "run" / "windows") / (os.cpu_count() or 1)
    print(
        f"       lower limit {least:.1f} s on {os.cpu_count()} cores; this took "
        f"{run.seconds / least:.1f} times that"
    )


def months(root: Path) -> None:
    """Preprocess 25, 50 and 200 M events."""
    measured: list[tuple[int, float]] = []
    for days in MONTHS:
        raw, folder = root / f"raw{days}", root / f"run{days}"
        n_events = write_days(raw, Shape(days))
        run = measure(raw, folder)
        measured.append((n_events, run.seconds))
        disk = [gb_of(each) for each in (raw, folder / "windows", folder)]
        print(
            f"months: {n_events:11,} events, {days:3d} days: {run.seconds:6.1f} s, "
            f"{n_events / run.seconds:9,.0f} events/s, peak memory {run.gib:.2f} GiB; GB on disk: "
            f"log {disk[0]:.1f}, windows {disk[1]:.1f}, with the cache {disk[2]:.1f}",
            flush=True,
        )
        shutil.rmtree(raw)
        shutil.rmtree(folder)
    (less, sooner), (more, later), (most, latest) = measured
    expected = later + (most - more) * (later - sooner) / (more - less)
    print(
        f"months: predicted for the longest {expected:.0f} s, {expected / latest:.2f} of the time"
    )


def gb_of(folder: Path) -> float:
    """Return the size of a folder's files in GB; a linked file counts once."""
    sizes = {stat.st_ino: stat.st_size for stat in (path.stat() for path in folder.rglob("*"))}
    return sum(sizes.values()) / 1e9


def curve(root: Path) -> None:
    """Preprocess logs of growing length."""
    costs = []
    for days, n_wanted in CURVE.items():
        n_events = write_month(root / f"raw{days}", shape_of(n_wanted, days))
        run = measure(root / f"raw{days}", root / f"run{days}")
        costs.append(run.seconds / n_events)
        print(
            f"curve: {n_events:9,} events, {days:2d} days: {run.seconds:6.1f} s, "
            f"{n_events / run.seconds:9,.0f} events/s, peak memory {run.gib:.2f} GiB"
        )
    print(f"curve: seconds per event, longest to shortest: {costs[-1] / costs[0]:.2f}")


def windows(root: Path) -> None:
    """Run the stages on logs of more and more small windows."""
    costs: dict[str, list[float]] = {}
    for n_hours in HOURS:
        raw, folder = root / f"raw{n_hours}", root / f"run{n_hours}"
        write_month(raw, Shape(n_hours // 24, 24 * SESSIONS_PER_HOUR))
        runs = {"preprocess": measure(raw, folder, unit="hour", min_sessions=1)}
        if n_hours < HOURS[-1]:
            runs |= {"train": apart(_train, folder), "aggregate": apart(_aggregate, folder, raw)}
        n_windows = len(_window_files(folder / "windows")) // 3
        for stage, run in runs.items():
            costs.setdefault(stage, []).append(run.seconds / n_windows)
            print(
                f"windows: {n_windows:6,} hours: {stage:10} {run.seconds:6.1f} s, "
                f"{1000 * costs[stage][-1]:.1f} ms each, peak memory {run.gib:.2f} GiB",
                flush=True,
            )
    for stage, each in costs.items():
        print(f"windows: {stage}: seconds per window, most to fewest: {each[-1] / each[0]:.2f}")


def extension(root: Path) -> None:
    """Preprocess 15 days without a cache, and then one more."""
    write_days(root / "tiny", TINY)
    write_days(root / "raw15", Shape(DAYS, SESSIONS_PER_DAY))
    write_days(root / "raw16", Shape(DAYS + 1, SESSIONS_PER_DAY))
    rounds = [_time_extension(root) for _ in range(ROUNDS)]
    tiny, fresh, longer = (statistics.median(times) for times in zip(*rounds, strict=True))
    shares = [(more - t0) / ((t15 - t0) / DAYS) for t0, t15, more in rounds]
    print(
        f"extension: T0 {tiny:.2f} s, T{DAYS} {fresh:.2f} s, another day {longer:.2f} s; allowed "
        f"{tiny + ALLOWED * (fresh - tiny) / DAYS:.2f} s; {statistics.median(shares):.2f} of a "
        f"day's cost (medians of {ROUNDS})"
    )
    for name, digest in _window_files(root / "run" / "windows").items():
        print(f"           {digest} {name}")


def _time_extension(root: Path) -> tuple[float, float, float]:
    """Return the seconds of the tiny log, of 15 days without a cache, and of another day."""
    shutil.rmtree(root / "run", ignore_errors=True)
    shutil.rmtree(root / "run0", ignore_errors=True)
    tiny = measure(root / "tiny", root / "run0")
    windows = root / "run" / "windows"
    fresh = measure(root / "raw15", root / "run")
    earlier, known = _window_files(windows), _vocabularies(windows)
    shutil.rmtree(windows)  # as DVC does
    longer = measure(root / "raw16", root / "run")
    now = _window_files(windows)
    assert len(earlier) == 3 * DAYS
    assert len(now) == 3 * (DAYS + 1)
    assert earlier.items() <= now.items(), "an earlier window's file changed"
    for column, table in _vocabularies(windows).items():
        assert table.slice(0, len(known[column])).equals(known[column]), f"{column} was renumbered"
    return tiny.seconds, fresh.seconds, longer.seconds


def _window_files(windows: Path) -> dict[str, str]:
    """Return the sha256 of every window's files."""
    return {path.name: sha256_of(path) for path in sorted(windows.glob("session_start_*.parquet"))}


def _vocabularies(windows: Path) -> dict[str, pa.Table]:
    paths = sorted((windows / "vocabulary").glob("*.parquet"))
    return {path.stem: pq.read_table(path, columns=[INDEX, VALUE]) for path in paths}


PARTS = {
    "month": month,
    "months": months,
    "curve": curve,
    "windows": windows,
    "extension": extension,
}


def main() -> None:
    """Run the parts named, or all but `months`."""
    print_header()
    for name in sys.argv[1:] or (name for name in PARTS if name != "months"):
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main()
