"""Windows out of events, as phases of tasks on a Dask cluster.

    parts       each part of the log, scattered by session (by user first, where a step needs it)
    sessions    each bucket of sessions through the steps, scattered by window
    windows     each window that stands into the order of its files, and what its vocabularies need
    features    vocabularies grown, statistics fitted; then each window encoded and written

The sizes of parts, buckets and cluster change nothing in the files written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from dayahead.config.params import MachineConfig, PreprocessConfig, WindowConfig
from dayahead.core.columns import SESSION_ID, USER_ID
from dayahead.core.errors import DataError
from dayahead.core.types import Device
from dayahead.dataset.schema import DatasetConfig
from dayahead.preprocess.calendar import calendar_over, microseconds_of
from dayahead.preprocess.dask_cluster import dask_client, memory_limit
from dayahead.preprocess.event_log import EventLog, Piece, require_whole
from dayahead.preprocess.incremental import Earlier, Left
from dayahead.preprocess.phases import Phases
from dayahead.preprocess.tally import Tally
from dayahead.preprocess.tasks import (
    Edges,
    Job,
    SortedSessions,
    SortedUsers,
    Spread,
    sort_sessions,
    sort_users,
    spread,
)
from dayahead.preprocess.window_counts import Listing
from dayahead.preprocess.writing import write_windows
from dayahead.windows.folder import MANIFEST
from dayahead.windows.metadata import write_manifest

EVENTS_AT_ONCE = 1_000_000
"""Events a task holds, if the memory limit allows."""
A_LOT = 50_000
"""Events that are worth a task of their own."""
BYTES_PER_EVENT = 4096
"""What a worker's memory is reckoned by: an event's columns, copied a few times."""
NAMED = 10
"""Windows that a message names."""


class LateRowsError(DataError):
    """Rows came for windows that are written."""


@dataclass(frozen=True)
class Build:
    """All that the windows are made by."""

    log: EventLog
    dataset: DatasetConfig
    window: WindowConfig
    config: PreprocessConfig
    machine: MachineConfig
    device: Device

    def windows(self, output: Path, scratch: Path, earlier: Earlier | None) -> Left:
        """Write what an earlier run (whose windows lie in `output`) has not.

        Raises:
            LateRowsError: rows came for windows that the earlier run wrote.
            DataError: no window stands, or sessions without users.
            ConfigError: fewer windows stand than are to be fitted on.
        """
        pieces = self._pieces(earlier)
        n_at_once = min(EVENTS_AT_ONCE, max(memory_limit(self.machine) // BYTES_PER_EVENT, 1))
        n_events = sum(piece.n_events for piece in pieces)
        memory = earlier.memory if earlier else {}
        with dask_client(
            self.machine, self.device, scratch, is_small=n_events <= n_at_once
        ) as client:
            phases = Phases(client, scratch)
            # As many as memory asks for, and of a day's events one for each thread.
            n_buckets = max(-(-n_events // n_at_once), min(phases.n_threads, n_events // A_LOT), 1)
            job = Job(self.dataset, self.window, n_buckets, output, self.device, memory)
            pieces = _shared(pieces, n_events, phases.n_threads)
            tasks = [(job, p, n_at_once, phases.path("parts", n)) for n, p in enumerate(pieces)]
            parts = phases.run("parts", spread, tasks)
            edges = self._edges(parts, earlier)
            users, sessions = _sorted(job, [part.path for part in parts], edges, phases)
            listing = self._listing(edges, parts, sessions, earlier)
            paths = [found.path for found in sessions]
            census = write_windows(job, listing, edges, paths, phases, earlier)
        write_manifest(output / MANIFEST, listing.manifest())
        return Left(
            begin=edges.begin,
            n_written=edges.n_closed,
            edge=int(edges.calendar.edges[edges.n_closed]),
            without_user=listing.without_user,
            tally=listing.tally,
            census=census,
            carried=[found.carried for found in sessions],
            memory={
                USER_ID: [*memory.get(USER_ID, ()), *(of.remembered for of in users)],
                SESSION_ID: [*memory.get(SESSION_ID, ()), *(of.remembered for of in sessions)],
            },
        )

    def _pieces(self, earlier: Earlier | None) -> list[Piece]:
        known = [sha256 for sha256, _ in earlier.state.parts] if earlier else []
        unread = []
        for part in self.log.parts:
            if part.sha256 in known:
                known.remove(part.sha256)
            else:
                unread.append(part)
        require_whole(unread)
        return [*(earlier.carried if earlier else ()), *map(Piece.of_part, unread)]

    def _edges(self, parts: Sequence[Spread], earlier: Earlier | None) -> Edges:
        """Cover every session's start with windows, from the log's first on."""
        starts = [part.starts for part in parts if part.starts is not None]
        if not starts and earlier is None:
            raise DataError(
                "data/raw: no event names a user, so sessions.gap_minutes can cut no session; "
                "name the right column as columns.user_id in the data set's file"
            )
        last = max((bounds[1] for bounds in starts), default=0)
        begin = min((bounds[0] for bounds in starts), default=0)
        if earlier is not None:
            begin, last = earlier.state.begin, max(last, earlier.state.edge - 1)
        calendar = calendar_over(self.window, begin, last)
        n_written = earlier.state.n_written if earlier else 0
        n_closed = int(
            np.searchsorted(calendar.closes, microseconds_of(self.log.end), side="right")
        )
        return Edges(calendar, begin, n_written, max(n_written, n_closed))

    def _listing(
        self,
        edges: Edges,
        parts: Sequence[Spread],
        sessions: Sequence[SortedSessions],
        earlier: Earlier | None,
    ) -> Listing:
        """Say what stands, of all windows from the log's first on."""
        tally = Tally.over([found.tally for found in sessions])
        without_user = sum(part.without_user for part in parts)
        if earlier is not None:
            _refuse_late(tally, edges)
            tally = Tally.over([earlier.tally, tally])
            without_user += earlier.state.without_user
        end, fit_windows = self.log.end, self.config.fit_windows
        listing = Listing(self.window, edges.calendar, tally, end, without_user, fit_windows)
        listing.check()
        return listing


def _shared(pieces: Sequence[Piece], n_events: int, n_threads: int) -> list[Piece]:
    """Cut what would keep one thread at work while others have none."""
    share = max(-(-n_events // n_threads), A_LOT)
    return list(chain.from_iterable(piece.cut(share) for piece in pieces))


def _sorted(
    job: Job, spreads: list[Path], edges: Edges, phases: Phases
) -> tuple[list[SortedUsers], list[SortedSessions]]:
    """Take the events through what goes by user, where anything does, and by session."""
    buckets = range(job.n_buckets)
    users = []
    if job.goes_by_user:
        tasks = [(job, spreads, n, edges, phases.path("users", n)) for n in buckets]
        users = phases.run("users", sort_users, tasks)
        phases.clear("parts")
        spreads = [found.path for found in users]
    tasks = [(job, spreads, n, edges, phases.path("sessions", n)) for n in buckets]
    sessions = phases.run("sessions", sort_sessions, tasks)
    phases.clear("users" if job.goes_by_user else "parts")
    return users, sessions


def _refuse_late(tally: Tally, edges: Edges) -> None:
    late = {
        edges.calendar.names[place]: int(tally["late"][place])
        for place in np.flatnonzero(tally["late"])
    }
    if not late:
        return
    names = [f"{name} ({n:,} events)" for name, n in late.items()]
    told = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
    raise LateRowsError(
        f"data/raw: {sum(late.values()):,} events came for {len(late)} windows that are written "
        f"already: {told}. Take these rows out of the source, or set preprocess.rebuild=true to "
        f"write these windows and all after them anew."
    )
