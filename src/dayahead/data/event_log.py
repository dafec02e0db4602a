"""data/raw/ as `download` left it: what is there, and whether it suits the data set."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_ID, SESSION_START, USER_ID
from dayahead.config.dataset import DatasetConfig
from dayahead.errors import DataError
from dayahead.files import read_json


@dataclass(frozen=True)
class EventLog:
    """The event table's files."""

    parts: tuple[Path, ...]
    events: int
    end: datetime
    """Up to here the log is whole."""


def event_columns(dataset: DatasetConfig) -> list[str]:
    """Columns of the event table that `preprocess` reads for this data set."""
    given = dataset.columns
    optional = {
        SESSION_ID: given.session_id,
        USER_ID: given.user_id,
        SESSION_START: given.session_start,
    }
    features = dataset.features.items()
    return [
        *(name for name, source in optional.items() if source is not None),
        *(ITEM_ID, EVENT_TIME, ROW),
        *(name for name, feature in features if feature.column is not None),
    ]


def read_event_log(raw: Path, dataset: DatasetConfig) -> EventLog:
    """Read data/raw/manifest.json and check the parts it names.

    Raises:
        DataError: the folder is missing, damaged, empty or of another data set.
    """
    path = raw / "manifest.json"
    try:
        manifest = read_json(path)
        parts = tuple(raw / part["file"] for part in manifest["parts"])
        log = EventLog(parts, manifest["events"], datetime.fromisoformat(manifest["log_end"]))
        columns = [pq.read_schema(part).names for part in parts]
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: not a readable event table ({type(error).__name__}: {error}); "
            f"run `dvc repro -f download`"
        ) from None
    if not log.events:
        raise DataError(f"{path}: expected events, found none; run `dvc repro -f download`")
    for part, names in zip(parts, columns, strict=True):
        missing = sorted(set(event_columns(dataset)) - set(names))
        if missing:
            raise DataError(
                f"{part}: columns {', '.join(missing)} of the data set's file are missing "
                f"(found {', '.join(names)}); run `dvc repro download`"
            )
    return log
