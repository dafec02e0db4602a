"""The journal of one stage: lines appended and flushed to disk before any server hears of them."""

import fcntl
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec

from dayahead.core.errors import redacted

P = ParamSpec("P")
Entry = dict[str, Any]


@cache
def warn_once(message: str) -> None:
    """Say the same thing a single time per process."""
    logging.getLogger(__name__).warning(message)


def harmless(function: Callable[P, None]) -> Callable[P, None]:
    """Turn whatever `function` raises into one warning: records must not end what they record."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            told = f"tracking: {function.__name__} failed and is left out: {error!r}"
            warn_once(redacted(told))

    return guarded


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Journal:
    """An append-only JSON-lines file and, beside it, the files that its lines speak of."""

    path: Path

    @property
    def stage(self) -> str:
        """The stage it tells of."""
        return self.path.stem

    def append(self, kind: str, **fields: object) -> None:
        """Append one line, whole and flushed, whatever other processes append.

        Raises:
            OSError: the disk refuses.
        """
        line = json.dumps({"kind": kind, "at": now_ms(), **fields}).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                # A writer killed within its line leaves it torn; ours must not be glued to it.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def read(self, offset: int = 0) -> Iterator[tuple[int, Entry]]:
        """Yield (offset behind it, entry) for each whole line from a byte offset on."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                if (entry := _parsed(line)) is not None:
                    yield offset, entry

    def entries(self, kind: str) -> list[Entry]:
        """Every entry of a kind."""
        return [entry for _, entry in self.read() if entry["kind"] == kind]

    def start(self) -> Entry | None:
        """The entry that names the run; None while there is none."""
        return next((entry for _, entry in self.read() if entry["kind"] == "start"), None)

    def keep(self, source: Path) -> str:
        """Keep a file or folder until it is sent: DVC deletes the workspaces of --temp runs.

        Returns:
            Its path relative to the journal's folder.
        """
        kept = self.new_folder() / source.name
        if source.is_dir():
            shutil.copytree(source, kept, copy_function=_linked)
        else:
            _linked(str(source), str(kept))
        return str(kept.relative_to(self.path.parent))

    def new_folder(self) -> Path:
        """A new folder for files that a line will speak of."""
        folder = self.path.with_suffix(".files") / uuid.uuid4().hex[:12]
        folder.mkdir(parents=True)
        return folder


def _parsed(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "kind" in entry else None


def _linked(source: str, target: str) -> str:
    # Outputs are replaced whole, never rewritten in place, so a second name keeps this content.
    try:
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copy2(source, target)
    return target


@dataclass(frozen=True)
class WindowLog:
    """Takes the record of a measured window; can be pickled into other processes."""

    journal: Journal

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Note `{"step": position, "timestamp_ms": start, "metrics": {name: value or None}}`."""
        self._note(record)

    @harmless
    def _note(self, record: Mapping[str, Any]) -> None:
        # An earlier, interrupted start may have noted it: MLflow would append it again.
        noted = (entry for entry in self.journal.entries("metrics") if entry["window"])
        if all(entry["step"] != record["step"] for entry in noted):
            self.journal.append(
                "metrics",
                step=int(record["step"]),
                timestamp=int(record["timestamp_ms"]),
                metrics=numbers(record["metrics"]),
                window=True,
            )


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that have a value, as plain floats."""
    return {name: float(value) for name, value in metrics.items() if value is not None}
