"""data/raw/manifest.json: source files, the files of events and items made of them, quality."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from dayahead.config.loading import validated
from dayahead.core.errors import ConfigError, DataError, first_line
from dayahead.core.files import read_json, write_json

MANIFEST = "manifest.json"
QUALITY_REPORT = "quality.md"
EVENTS_FILE, ITEMS_FILE = "events-{:05d}.parquet", "items-{:05d}.parquet"
"""Names of the files of events and of items, by their numbers from 0."""


@dataclass(frozen=True)
class EventsFile:
    """One events-*.parquet, or items-*.parquet: rows of one source file."""

    file: str
    events: int
    sha256: str
    first_event: str
    """Earliest event time, ISO 8601 in UTC; empty in a table of items without times."""
    last_event: str
    first_row: int = 0
    """Row number in the whole log of the source file's row 0; the column `row` counts within it."""


@dataclass(frozen=True)
class SourceRecord:
    """One source file, or the generator."""

    url: str
    """Address without credentials and without folders of this machine."""
    file: str
    bytes: int
    sha256: str
    """Hash of its content, or of the generator's settings."""
    rows: int
    events: int
    dropped: dict[str, int]
    """Number of rows that are no events, by reason."""


@dataclass(frozen=True)
class QualityResult:
    """One quality check of the whole log."""

    __pydantic_config__: ClassVar = ConfigDict(extra="ignore")  # share: written, not read

    check: str
    """Key under `quality` in datasets/<name>.yaml, such as nulls.price."""
    found: int
    """Defective rows; for empty_days: days without an event."""
    of: int
    """Rows (days) that were checked."""
    limit: float | None
    """Maximum share; None: any."""
    examples: tuple[str, ...]
    """Locations of the first defects."""
    worst: str = ""
    """Share and name of the file with the largest share."""
    share: float = field(init=False)
    """Share of rows (days) that are defective."""

    def __post_init__(self) -> None:
        """Compute the share."""
        object.__setattr__(self, "share", self.found / self.of if self.of else 0.0)


@dataclass(frozen=True)
class ItemsRecord:
    """The table of items."""

    rows: int
    """Rows of its source files."""
    dropped: dict[str, int]
    """Number of rows left out, by reason."""
    files: tuple[SourceRecord, ...]
    parts: tuple[EventsFile, ...]
    quality: tuple[QualityResult, ...]


@dataclass(frozen=True)
class RawManifest:
    """Description of the files that `download` has written to data/raw."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    dataset: str
    log_end: datetime
    """Time up to which the log is complete."""
    rows: int
    events: int
    dropped: dict[str, int]
    files: tuple[SourceRecord, ...]
    parts: tuple[EventsFile, ...]
    quality: tuple[QualityResult, ...] = ()
    span: tuple[int, int] | None = None
    """Where there are strays: begin and end of the days that are the log's, microseconds since
    1970, UTC. Events outside are set aside until a longer log holds them within."""

    items: ItemsRecord | None = None
    """The table of items, where the data set has one."""

    def write(self, raw: Path) -> None:
        """Write manifest.json into the folder data/raw."""
        content = asdict(self) | {"log_end": self.log_end.isoformat()}
        write_json(raw / MANIFEST, {k: v for k, v in content.items() if v is not None})

    @classmethod
    def read(cls, raw: Path) -> "RawManifest":
        """Read manifest.json from the folder data/raw.

        Raises:
            DataError: it is missing or damaged.
        """
        path = raw / MANIFEST
        try:
            return validated(cls, read_json(path), MANIFEST)
        except (OSError, ValueError, ConfigError) as error:
            raise DataError(
                f"{path}: not a readable manifest ({type(error).__name__}: {first_line(error)}); "
                f"run `dvc repro -f download`"
            ) from None
