"""The official log: all events in data/raw, before any rule for sessions."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from dayahead.core.columns import EVENT_TIME, ITEM_ID, SESSION_ID, TIMESTAMP, USER_ID
from dayahead.dataset.manifest import RawManifest
from dayahead.dataset.time import microseconds


@dataclass(frozen=True)
class OfficialLog:
    """The events of data/raw."""

    paths: tuple[Path, ...]
    owner: str
    """The column of sessions; that of users where sessions are cut by gaps."""
    end: int
    """Time up to which it is complete, microseconds since 1970."""

    @classmethod
    def of(cls, root: Path) -> "OfficialLog":
        """Return that of a project.

        Raises:
            DataError: the manifest is missing or damaged.
        """
        raw = root / "data" / "raw"
        manifest = RawManifest.read(raw)
        paths = tuple(raw / part.file for part in manifest.parts)
        has_sessions = SESSION_ID in pq.read_schema(paths[0]).names
        owner = SESSION_ID if has_sessions else USER_ID
        return cls(paths, owner, microseconds(manifest.log_end))

    def between(
        self, start: int, end: int, owners: Collection[str] | None = None
    ) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        """Yield owners, items (both as text) and times of the events in a span, a part at a time.

        Args:
            start: microseconds since 1970, as `end` and the times are.
            end: the first time that is not in the span.
            owners: those whose events are wanted; None: all.
        """
        time = pc.field(EVENT_TIME)
        limits = (pa.scalar(each, pa.int64()).cast(TIMESTAMP) for each in (start, end))
        is_wanted = (time >= next(limits)) & (time < next(limits))
        if owners is not None:
            is_wanted &= pc.field(self.owner).cast(pa.string()).isin(pa.array(owners, pa.string()))
        columns = [self.owner, ITEM_ID, EVENT_TIME]
        for batch in dataset(self.paths).to_batches(columns=columns, filter=is_wanted):
            names, items, times = batch.columns
            text = names.cast(pa.string()).fill_null(""), items.cast(pa.string())
            yield *text, times.cast(pa.int64())
