"""What a run writes per measured window: ranks, a row of windows.csv, a row of timing.csv."""

import csv
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import pyarrow as pa

from dayahead.evaluation.tables import (
    WindowRanks,
    WindowResult,
    write_ranks,
    write_windows,
)
from dayahead.files import write_text, written_whole
from dayahead.training import attention, predictions
from dayahead.training.attention import write_attention
from dayahead.training.predictions import write_predictions

WINDOWS = "windows.csv"
TIMING = "timing.csv"
ABOUT = {module.FOLDER: module.ABOUT for module in (predictions, attention)}
"""Folders that are always there, and what they hold where it is asked for."""


@dataclass(frozen=True)
class Timing:
    """Clock times of a window; they differ from run to run and enter no equality."""

    window: str
    fit_seconds: float
    fit_sessions_per_second: float
    """Sessions times epochs."""
    measure_seconds: float
    measure_sessions_per_second: float


@dataclass(frozen=True)
class MeasuredWindow:
    """All that is written of a window."""

    ranks: WindowRanks
    result: WindowResult
    timing: Timing
    predictions: pa.Table | None
    attention: pa.Table | None


@dataclass
class ResultsFolder:
    """The results folder of the run going on; tables are rewritten whole after each window."""

    folder: Path
    rows: list[WindowResult] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)

    def begin(self) -> None:
        """Take away what a run before left, and say what the folders will hold.

        DVC wants the folders it is told of, and warns of empty ones.
        """
        for name in ("ranks", *ABOUT):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in (WINDOWS, TIMING):
            (self.folder / name).unlink(missing_ok=True)
        for name, text in ABOUT.items():
            write_text(self.folder / name / "README.txt", text)

    def add(self, measured: MeasuredWindow) -> None:
        """Write one window's ranks and lists, and both tables."""
        window = measured.result.window
        write_ranks(self.folder, window, measured.ranks)
        if measured.predictions is not None:
            write_predictions(self.folder, window, measured.predictions)
        if measured.attention is not None:
            write_attention(self.folder, window, measured.attention)
        self.rows.append(measured.result)
        self.timings.append(measured.timing)
        write_windows(self.folder / WINDOWS, self.rows)
        self._write_timings()

    def _write_timings(self) -> None:
        with (
            written_whole(self.folder / TIMING) as temporary,
            temporary.open("w", newline="") as file,
        ):
            names = [entry.name for entry in fields(Timing)]
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(timing) for timing in self.timings)
