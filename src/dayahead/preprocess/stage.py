"""The event log into one set of files per window: reuse a finished run, then build the rest.

    parts       each chunk of the log, shuffled by session (by user first, where a step needs it)
    sessions    each bucket of sessions through the steps, shuffled by window
    windows     each kept window in the order of its files, and the values in it
    features    vocabularies and statistics; then each window encoded and written

These phases run on a Dask cluster. The sizes of chunks, buckets and cluster change no byte.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dayahead.config.machine import MachineConfig
from dayahead.config.windows import PreprocessConfig, WindowConfig
from dayahead.core.columns import EVENT_TYPE, SESSION_ID, TIMESTAMP, USER_ID
from dayahead.core.errors import DataError
from dayahead.core.files import write_json
from dayahead.core.phases import in_phase, phase
from dayahead.dataset.item_table import item_table
from dayahead.dataset.manifest import RawManifest
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import Ints, is_new
from dayahead.features.workflow import fit_features
from dayahead.preprocess import tasks
from dayahead.preprocess.calendar import Progress, calendar_over
from dayahead.preprocess.defects import Examples, merged
from dayahead.preprocess.event_log import Chunk, carry_strays, check_parts, read_event_log
from dayahead.preprocess.incremental import (
    CARRY_OVER,
    LOOKUPS,
    STATE,
    STRAYS,
    WINDOWS,
    FinishedRuns,
    RunState,
    items_of,
    read_state,
)
from dayahead.preprocess.item_file import write_items
from dayahead.preprocess.items import ItemRows, ItemsByWindow
from dayahead.preprocess.late import LateRowsError, check_late_events, check_late_items
from dayahead.preprocess.metadata import WindowCounts, write_merlin_schema
from dayahead.preprocess.report import check_defects, report_losses
from dayahead.preprocess.sessions import needs_users, steps_of
from dayahead.preprocess.vocabularies import grow_vocabularies
from dayahead.preprocess.workers import Phases, memory_limit, workers
from dayahead.windows.folder import (
    GRACE_SUFFIX,
    ITEMS,
    MANIFEST,
    STATISTICS,
    n_known,
)
from dayahead.windows.metadata import (
    FeatureStatistics,
    SessionRules,
    Statistics,
    WindowsManifest,
    read_metadata,
)

MAX_EVENTS_PER_TASK = 1_000_000
"""Maximum number of events per task; fewer if the memory limit requires it."""
MIN_EVENTS_PER_TASK = 50_000
"""Fewer events are not worth a task of their own."""
EVENTS_PER_FILES = 1_000
"""Fixed cost of writing a window's files, as a number of events."""
BYTES_PER_EVENT = 4096
"""Bytes of a worker's memory per event: its columns, copied a few times."""
_log = logging.getLogger(__name__)


def preprocess(
    raw: Path,
    folder: Path,
    dataset: DatasetConfig,
    window: WindowConfig,
    config: PreprocessConfig,
    machine: MachineConfig,
) -> None:
    """Write the folder of windows, whole or not at all.

    Where the cache has a run over some parts of this log, its windows are linked into the folder,
    and only the other parts are read. `raw` is the event table, as `download` left it.

    Raises:
        ConfigError: a setting that cannot be met (zone, scheduler, fit_windows).
        DataError: no readable event table, no kept window, late rows, or a limit of `quality`.
    """
    with phase("log"):
        log = read_event_log(raw, dataset)
    # Absolute: workers of an existing cluster have other working directories.
    folder = folder.absolute()
    # Next to the folder, on the same file system: it is renamed into place.
    building = folder.with_name(f".{folder.name}.building")
    build = Build(raw, log, dataset, window, config, machine)
    try:
        run = _finished_run(build, building)
        check_defects(_manifest(run), read_state(run).examples, dataset)
        if folder.exists():
            # Moved aside, as a folder can only be renamed to a free name; it is removed below.
            folder.rename(building / "replaced")
        (run / WINDOWS).rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _finished_run(build: "Build", building: Path) -> Path:
    """Reuse the run of this log, or continue the longest run that fits, or build everything."""
    run, scratch = building / "run", building / "scratch"
    runs = FinishedRuns(build.dataset, build.window, build.config.fit_windows)
    # None comes last: build everything, without an earlier run.
    for key in [*runs.candidates(build.log), None]:
        shutil.rmtree(building, ignore_errors=True)  # left by a killed run, or by a candidate
        (run / WINDOWS).mkdir(parents=True)
        scratch.mkdir()
        with phase("cache"):
            previous = RunState() if key is None else runs.restore(key, run)
        if previous is None:
            continue
        _log.info("preprocess: %d closed windows reused", previous.n_written)
        if key == runs.key(build.log):
            report_losses(_manifest(run), build.dataset, build.window)
            break
        try:
            build.windows(run, scratch, previous)
        except LateRowsError as error:
            if not build.config.rebuild:
                raise
            _log.warning("preprocess: %s Rewriting them, as preprocess.rebuild is true", error)
        else:
            with phase("cache"):
                runs.save(run, build.log)
            break
    return run


def _manifest(run: Path) -> WindowsManifest:
    return read_metadata(WindowsManifest, run / WINDOWS / MANIFEST)


@dataclass(frozen=True)
class Build:
    """Everything that the windows depend on."""

    raw: Path
    log: RawManifest
    dataset: DatasetConfig
    window: WindowConfig
    config: PreprocessConfig
    machine: MachineConfig

    def windows(self, run: Path, scratch: Path, previous: RunState) -> None:
        """Complete a run's folder, which holds the files of a previous run.

        Raises:
            LateRowsError: rows arrived for windows that the previous run wrote.
            DataError: no window is kept, or sessions without users.
            ConfigError: fewer windows are kept than are to be fitted on.
        """
        items = self._items(run, scratch)
        chunks = self._chunks(run, previous)
        n_events = sum(chunk.n_events for chunk in chunks)
        limit = max(memory_limit(self.machine) // BYTES_PER_EVENT, 1)
        per_task = min(MAX_EVENTS_PER_TASK, limit)
        is_small = n_events <= per_task
        with workers(self.machine, scratch, is_small=is_small) as started:
            phases = Phases(started, scratch)
            # As many buckets as memory requires; for fewer events, one for each thread.
            n_small = min(phases.workers.n_threads, n_events // MIN_EVENTS_PER_TASK)
            n_buckets = max(-(-n_events // per_task), n_small, 1)
            lookups = {key: sorted(run.glob(f"{LOOKUPS}/{key}/*")) for key in (USER_ID, SESSION_ID)}
            job = tasks.Job(
                *(self.dataset, self.window, run, lookups, n_buckets, per_task),
                span=self.log.span,
                items=scratch / ITEMS if items else None,
            )
            # Chunks are split evenly among threads, so that none is idle while others have much.
            share = max(-(-n_events // phases.workers.n_threads), MIN_EVENTS_PER_TASK)
            chunks = list(chain.from_iterable(chunk.split(share) for chunk in chunks))
            self._complete(job, chunks, phases, previous, items)

    def _complete(
        self,
        job: tasks.Job,
        chunks: Sequence[Chunk],
        phases: Phases,
        previous: RunState,
        items: ItemRows | None,
    ) -> None:
        paths = phases.paths("parts", len(chunks))
        parts = phases.run("parts", partial(tasks.scatter_chunk, job), chunks, paths)
        shutil.rmtree(job.run / CARRY_OVER, ignore_errors=True)  # it is among the parts
        n_strays = carry_strays(paths, job.run / CARRY_OVER / STRAYS)
        without_user = previous.without_user + sum(part[0] for part in parts)
        progress = self._progress([start for part in parts for start in part[1]], previous)
        found, examples = zip(*_process(job, paths, progress, phases), strict=True)
        earlier = pd.DataFrame(previous.counts, dtype=np.int64)
        counts = pd.concat([*found, earlier]).groupby(level=0).sum()
        check_late_events(counts["late"].to_numpy(), progress.calendar.names, previous.log_end)
        summary = WindowCounts(
            self.window,
            progress.calendar,
            counts,
            self.log.log_end,
            without_user,
            steps_of(self.dataset.sessions),
            n_strays,
        )
        has_users = self.dataset.columns.session_holds_user
        manifest = summary.manifest(self.dataset.split.seed if has_users else None)
        report_losses(manifest, self.dataset, self.window)
        summary.check(self.config.fit_windows)
        self._write_windows(job, summary, progress, phases, items)
        write_json(job.run / WINDOWS / MANIFEST, manifest.as_json())
        state = RunState(
            parts=[(part.sha256, part.first_row) for part in self.log.parts],
            log_end=self.log.log_end.isoformat(),
            begin=int(progress.calendar.edges[0]),
            end=progress.closed_until,
            n_written=progress.n_closed,
            without_user=without_user,
            span=self.log.span,
            items=items_of(self.log),
            counts=counts[: progress.n_closed].to_dict("list"),
            examples=merged([*examples, previous.examples]),
        )
        write_json(job.run / STATE, asdict(state))

    def _items(self, run: Path, scratch: Path) -> ItemRows | None:
        """Read the table of items, if there is one, and write its features for the tasks."""
        table = item_table(self.dataset)
        if table is None:
            return None
        with phase("items"):
            items = ItemRows.read(self.raw, self.log, table)
            check_late_items(items, run)
            items.write_features(scratch / ITEMS)
        return items

    def _chunks(self, run: Path, previous: RunState) -> list[Chunk]:
        """Return the chunks to read: the carry-over, and parts that the previous run lacked."""
        known = set(previous.positions_in(self.log) or ())
        unread = [part for n, part in enumerate(self.log.parts) if n not in known]
        check_parts(self.raw, unread)
        shifts = previous.row_shifts(self.log)
        carry_over = sorted(run.glob(f"{CARRY_OVER}/*"))
        return [
            *(Chunk.of_file(path, shifts) for path in carry_over),
            *(Chunk.of_file(self.raw / part.file, {0: part.first_row}) for part in unread),
        ]

    def _progress(self, starts: Sequence[int], previous: RunState) -> Progress:
        """Return the windows that cover all session starts, and how many of them are closed."""
        if previous.n_written:  # sessions before its first window count as late for that window
            starts = [max(start, previous.begin) for start in starts]
            # The calendar must cover the windows that are already written.
            starts += [previous.begin, previous.end - 1]
        if not starts:
            raise DataError(
                "data/raw: no event names a user, so sessions.gap_minutes can cut no session; "
                "name the right column as columns.user_id in the data set's file"
            )
        calendar = calendar_over(self.window, min(starts), max(starts))
        end = pa.scalar(self.log.log_end, TIMESTAMP).value
        n_closed = int(np.searchsorted(calendar.closes, end, side="right"))
        return Progress(calendar, previous.n_written, max(previous.n_written, n_closed))

    def _write_windows(
        self,
        job: tasks.Job,
        summary: WindowCounts,
        progress: Progress,
        phases: Phases,
        items: ItemRows | None,
    ) -> None:
        """Write the kept windows that are new, the vocabularies, statistics and schema."""
        output = job.run / WINDOWS
        positions = [position for position in summary.kept if position >= progress.n_written]
        names = [progress.calendar.names[position] for position in positions]
        paths = phases.paths("windows", len(names))
        batches = _batches(summary.counts["events"].to_numpy()[positions])
        sessions = phases.paths("sessions", job.n_buckets)
        task = partial(tasks.collect_windows, job, sessions, progress)
        batched = [positions[batch] for batch in batches], [paths[batch] for batch in batches]
        found = list(chain.from_iterable(phases.run("windows", task, *batched)))
        phases.clear("sessions")
        known = ItemsByWindow.of(items, progress, summary.kept) if items else None
        values = dict(zip(names, found, strict=True))
        vocabularies = grow_vocabularies(self.dataset, job.run, values, known)
        windows = dict(zip(names, paths, strict=True))
        statistics = self._statistics(output / STATISTICS, windows, vocabularies, items)
        if known is not None:
            write_items(known, job.run, statistics, vocabularies)
        write_json(output / STATISTICS, statistics.as_json())
        write_merlin_schema(output / "schema.pbtxt", statistics, vocabularies)
        ends = [name + GRACE_SUFFIX for name in names]
        sizes = {column: n_known(table, ends) for column, table in vocabularies.items()}
        if any(feature.windows for feature in statistics.features.values()):
            batches = [slice(n, n + 1) for n in range(len(names))]  # each has its own statistics
        phases.run(
            "features",
            partial(tasks.write_windows, job, statistics),
            [names[batch] for batch in batches],
            [paths[batch] for batch in batches],
            [{column: n[batch] for column, n in sizes.items()} for batch in batches],
        )

    @in_phase("statistics")
    def _statistics(
        self,
        path: Path,
        windows: Mapping[str, Path],
        vocabularies: Mapping[str, pa.Table],
        items: ItemRows | None,
    ) -> Statistics:
        """Fit the features, or add to a previous run's those that are fitted on each window."""
        features, rules = self.dataset.all_features, self.dataset.sessions
        if not path.exists():
            return Statistics(
                unit=self.window.unit,
                length=self.window.length,
                timezone=self.window.timezone,
                item_type=self.dataset.columns.item_id.type,
                sessions=SessionRules(
                    # Live sessions do not name types, without which no item is ruled out.
                    repeats=rules.repeats.rule if not self.dataset.columns.event_type else "keep",
                    min_length=rules.min_length,
                    max_length=rules.max_length,
                    truncate=rules.truncate,
                    past_max_length=rules.past_max_length,
                ),
                fitted_on=list(windows)[: self.config.fit_windows],
                features=self._fitted(windows, vocabularies),
                title=self.dataset.columns.title,
                event_type=EVENT_TYPE if self.dataset.columns.event_type else None,
                items=items.statistics if items else None,
            )
        statistics = read_metadata(Statistics, path)
        by_window = {name: f for name, f in features.items() if f.fit == "look_ahead_window"}
        known = dict(statistics.features)
        found = fit_features(by_window, windows, 0, vocabularies)
        for name, new in found.items():
            both = {**(known[name].windows or {}), **(new.windows or {})}
            known[name] = replace(known[name], windows=both)
        return replace(statistics, features=known)

    def _fitted(
        self, windows: Mapping[str, Path], vocabularies: Mapping[str, pa.Table]
    ) -> dict[str, FeatureStatistics]:
        features, n = self.dataset.all_features, self.config.fit_windows
        found = fit_features(features, windows, n, vocabularies)
        of_items = self.dataset.items.features if self.dataset.items else {}
        return found | {name: replace(found[name], of_item=True) for name in of_items}


def _process(
    job: tasks.Job, paths: Sequence[Path], progress: Progress, phases: Phases
) -> list[tuple[pd.DataFrame, Examples]]:
    """Apply the steps by user, if any, and by session; return counts and examples by bucket."""
    buckets = range(job.n_buckets)
    source = "parts"
    if needs_users(job.dataset.sessions):
        users = phases.paths("users", job.n_buckets)
        phases.run("users", partial(tasks.process_users, job, paths, progress), buckets, users)
        phases.clear(source)
        source, paths = "users", users
    task = partial(tasks.process_sessions, job, paths, progress)
    counts = phases.run("sessions", task, buckets, phases.paths("sessions", job.n_buckets))
    phases.clear(source)
    return counts


def _batches(n_events: Ints) -> list[slice]:
    """Split windows into batches that are large enough for a task."""
    cost = n_events + EVENTS_PER_FILES
    batch = (np.cumsum(cost) - cost) // MIN_EVENTS_PER_TASK
    return [slice(*pair) for pair in pairwise([*np.flatnonzero(is_new(batch)), len(batch)])]
