"""data/raw/manifest.json: the source files, the events files made from them, and their quality."""

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_json

MANIFEST = "manifest.json"
QUALITY_REPORT = "quality.md"


def events_file_name(number: int) -> str:
    """Return the name of the events file with this number, from 0."""
    return f"events-{number:05d}.parquet"


@dataclass(frozen=True)
class EventsFile:
    """One events-*.parquet: rows of one source file."""

    file: str
    events: int
    sha256: str
    first_event: str
    """Earliest event time, ISO 8601 in UTC."""
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

    @property
    def share(self) -> float:
        """Share of rows (days) that are defective."""
        return self.found / self.of if self.of else 0.0


@dataclass(frozen=True)
class RawManifest:
    """Description of the files that `download` has written to data/raw."""

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

    def write(self, raw: Path) -> None:
        """Write manifest.json into the folder data/raw."""
        quality = [asdict(result) | {"share": result.share} for result in self.quality]
        content = asdict(self) | {"log_end": self.log_end.isoformat(), "quality": quality}
        if self.span is None:
            del content["span"]
        write_json(raw / MANIFEST, content)

    @classmethod
    def read(cls, raw: Path) -> "RawManifest":
        """Read manifest.json from the folder data/raw.

        Raises:
            DataError: it is missing or damaged.
        """
        path = raw / MANIFEST
        try:
            found = read_json(path)
            for result in found.get("quality", ()):
                result["examples"] = tuple(result["examples"])
                del result["share"]
            return cls(
                **found
                | {
                    "log_end": datetime.fromisoformat(found["log_end"]),
                    "files": tuple(SourceRecord(**file) for file in found["files"]),
                    "parts": tuple(EventsFile(**part) for part in found["parts"]),
                    "quality": tuple(QualityResult(**q) for q in found.get("quality", ())),
                    "span": _span(found.get("span")),
                }
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: not a readable manifest ({type(error).__name__}: {error}); "
                f"run `dvc repro -f download`"
            ) from None


def _span(found: list[int] | None) -> tuple[int, int] | None:
    if found is None:
        return None
    first, end = map(int, found)
    return first, end
