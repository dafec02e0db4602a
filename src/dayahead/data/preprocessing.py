"""The event log into window files, as phases of tasks on a Dask cluster.

    parts       each part of the log, scattered by session (by user first, where a step needs it)
    sessions    each bucket of sessions through the steps, scattered by window
    windows     each window that stands into the order of its files, and what its vocabularies need
    features    vocabularies grown, statistics fitted; then each window encoded and written

The sizes of parts, buckets and cluster change nothing in the files written.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from distributed import Client, KilledWorker, as_completed
from tqdm import tqdm

from dayahead.columns import ITEM_ID
from dayahead.config.dataset import DatasetConfig
from dayahead.config.params import PreprocessConfig, WindowConfig
from dayahead.data.calendar import calendar_over
from dayahead.data.cluster import dask_client, device_of
from dayahead.data.event_log import EventLog, read_event_log
from dayahead.data.features import VALUE_TYPES, fitted
from dayahead.data.listing import Listing
from dayahead.data.partitions import (
    Job,
    collect_window,
    sort_sessions,
    sort_users,
    spread,
    write_window,
)
from dayahead.data.schema import write_merlin_schema
from dayahead.data.vocabulary import empty_vocabulary, grown
from dayahead.data.windows import vocabulary_path
from dayahead.errors import DataError
from dayahead.files import write_json, write_parquet

T = TypeVar("T")

EVENTS_PER_BUCKET = 1_000_000
"""Events a task of sessions holds at once, about 0.5 GiB with a dozen columns."""
_log = logging.getLogger(__name__)


def preprocess(
    raw: Path,
    folder: Path,
    dataset: DatasetConfig,
    window: WindowConfig,
    config: PreprocessConfig,
) -> None:
    """Write the folder of windows anew, whole or not at all.

    Args:
        raw: the event table, as `download` left it.
        folder: what is there is replaced at the end.
        dataset: what the events mean and what a session is.
        window: unit, zone and rules of the windows.
        config: device, cluster, windows to fit on.

    Raises:
        ConfigError: a setting that cannot be met (zone, scheduler, device, fit_windows).
        DataError: no readable event table, or no window that stands.
    """
    log = read_event_log(raw, dataset)
    device = device_of(config)
    # Workers of a cluster that was there before us stand in folders of their own.
    with _built_beside(folder.absolute()) as building:
        scratch, output = building / "scratch", building / "windows"
        n_buckets = -(-log.events // EVENTS_PER_BUCKET)
        job = Job(dataset, window, n_buckets, output, device)
        with dask_client(config, scratch) as client:
            phases = _Phases(client, scratch)
            listing, spreads = _sessions(job, log, phases)
            listing.check(config.fit_windows)
            _windows(job, listing, spreads, config.fit_windows, phases)
        write_json(output / "windows.json", listing.as_json())


@dataclass(frozen=True)
class _Phases:
    """Runs the tasks of one phase after the other."""

    client: Client
    scratch: Path

    def run(
        self, phase: str, function: Callable[..., T], tasks: Sequence[Sequence[Any]]
    ) -> list[T]:
        """Call `function` with each task's arguments on the workers; results in their order."""
        futures = [self.client.submit(function, *task, pure=False) for task in tasks]
        with tqdm(total=len(tasks), desc=phase, disable=None, leave=False) as bar:
            for future in as_completed(futures):
                if future.status == "error":
                    break
                bar.update()
        try:
            results: list[T] = self.client.gather(futures)
        except KilledWorker:
            raise DataError(
                f"preprocess, {phase}: a Dask worker ran out of memory again and again; raise "
                f"preprocess.memory_limit or lower preprocess.workers"
            ) from None
        finally:
            self.client.cancel(futures)
        _log.info("preprocess: %s: %d done", phase, len(tasks))
        return results

    def path(self, phase: str, number: int) -> Path:
        """A scratch file of a phase."""
        return self.scratch / f"{phase}-{number:05d}.parquet"


def _sessions(job: Job, log: EventLog, phases: _Phases) -> tuple[Listing, list[Path]]:
    """Spread the log and take its sessions through the steps; the files hold events by window."""
    parts = phases.run(
        "parts",
        spread,
        [(job, part.absolute(), phases.path("parts", n)) for n, part in enumerate(log.parts)],
    )
    spreads = [part.path for part in parts]
    if job.goes_by_user:
        buckets = range(job.n_buckets)
        tasks = [(job, spreads, n, phases.path("users", n)) for n in buckets]
        spreads = phases.run("users", sort_users, tasks)
    starts = [part.starts for part in parts if part.starts is not None]
    if not starts:
        raise DataError(
            "data/raw: no event names a user, so sessions.gap_minutes can cut no session; name "
            "the right column as columns.user_id in the data set's file"
        )
    calendar = calendar_over(job.window, min(s[0] for s in starts), max(s[1] for s in starts))
    results = phases.run(
        "sessions",
        sort_sessions,
        [(job, spreads, n, calendar, phases.path("sessions", n)) for n in range(job.n_buckets)],
    )
    tally = reduce(add, (tally for _, tally in results))
    without_user = sum(part.without_user for part in parts)
    listing = Listing(job.window, calendar, tally, log.end, without_user)
    return listing, [path for path, _ in results]


def _windows(
    job: Job, listing: Listing, spreads: list[Path], fit_windows: int, phases: _Phases
) -> None:
    """Write everything but windows.json."""
    standing = listing.standing
    names = [listing.calendar.names[place] for place in standing]
    paths = [phases.path("windows", place) for place in standing]
    found = phases.run(
        "windows",
        collect_window,
        [(job, spreads, *task) for task in zip(standing, paths, strict=True)],
    )

    vocabularies = _vocabularies(job, names, found)
    for column, table in vocabularies.items():
        write_parquet(vocabulary_path(job.output, column), table)
    numbers = fitted(job.dataset.features, paths[:fit_windows], job.device)
    statistics = _statistics(job, names[:fit_windows], numbers)
    write_json(job.output / "statistics.json", statistics)
    write_merlin_schema(job.output / "schema.pbtxt", statistics, vocabularies)

    phases.run(
        "features",
        write_window,
        [(job, *task, statistics) for task in zip(names, paths, strict=True)],
    )


def _vocabularies(
    job: Job, names: Sequence[str], found: Sequence[Mapping[str, pa.Table]]
) -> dict[str, pa.Table]:
    types = {ITEM_ID: job.dataset.columns.item_id.type}
    types |= {name: feature.type for name, feature in job.dataset.features.items()}
    return {
        column: grown(
            empty_vocabulary(VALUE_TYPES[types[column]]),
            [(name, tables[column]) for name, tables in zip(names, found, strict=True)],
        )
        for column in job.categorical
    }


def _statistics(
    job: Job, fitted_on: Sequence[str], numbers: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """statistics.json: all that a live session's events need to become model input."""
    sessions = job.dataset.sessions
    features = {}
    for name, feature in job.dataset.features.items():
        entry: dict[str, Any] = {"kind": feature.kind, "columns": feature.columns_of(name)}
        if feature.kind == "categorical":
            entry["type"] = feature.type
        features[name] = entry | dict(numbers.get(name, {}))
    return {
        "unit": job.window.unit,
        "timezone": job.window.timezone,
        "item_type": job.dataset.columns.item_id.type,
        "sessions": {
            "repeats": sessions.repeats.rule,
            "min_length": sessions.min_length,
            "max_length": sessions.max_length,
            "truncate": sessions.truncate,
        },
        "fitted_on": list(fitted_on),
        "features": features,
    }


@contextmanager
def _built_beside(folder: Path) -> Iterator[Path]:
    """Give a work folder beside `folder`; on success its `windows` takes the place of `folder`."""
    building = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # what a killed run left
    (building / "scratch").mkdir(parents=True)
    (building / "windows").mkdir()
    try:
        yield building
        if folder.exists():
            folder.rename(building / "replaced")
        (building / "windows").rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
