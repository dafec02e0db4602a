"""When the entries of the history were written: a file beside it, since it holds no clock time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zlib import crc32

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from dayahead.core.files import write_text

_ROWS: Final = TypeAdapter(list[tuple[str, AwareDatetime] | None])


@dataclass(frozen=True)
class EntryTimes:
    """The file nights/times.json: for each entry its fingerprint and its time, or null.

    Nothing is decided by it: where it is missing or damaged, the page has no times.
    """

    path: Path

    def record(self, position: int, line: str) -> None:
        """Record that the line at a position of the history is written now.

        Times of later positions are those of another history and are removed.
        """
        rows = self._rows()[:position]
        rows += [None] * (position - len(rows))
        now = datetime.now(UTC).replace(microsecond=0)
        write_text(self.path, _ROWS.dump_json([*rows, (_digest(line), now)]).decode())

    def of(self, lines: Sequence[str]) -> dict[int, datetime]:
        """Return the times of the lines of a history, by position."""
        rows = zip(self._rows(), lines, strict=False)
        return {
            position: row[1]
            for position, (row, line) in enumerate(rows)
            if row is not None and row[0] == _digest(line)
        }

    def _rows(self) -> list[tuple[str, datetime] | None]:
        try:
            return _ROWS.validate_json(self.path.read_bytes())
        except (OSError, ValidationError):
            return []


def _digest(line: str) -> str:
    return f"{crc32(line.encode()):08x}"
