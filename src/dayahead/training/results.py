"""What a run writes per measured window: ranks, a row of windows.csv, a row of timing.csv."""

import csv
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from dayahead.evaluation.tables import (
    WindowRanks,
    WindowResult,
    write_ranks,
    write_windows,
)
from dayahead.files import written_whole

WINDOWS = "windows.csv"
TIMING = "timing.csv"


@dataclass(frozen=True)
class Timing:
    """Clock times of a window; they differ from run to run and enter no equality."""

    window: str
    fit_seconds: float
    fit_sessions_per_second: float
    """Sessions times epochs."""
    measure_seconds: float
    measure_sessions_per_second: float


@dataclass
class ResultsFolder:
    """The results folder of the run going on; tables are rewritten whole after each window."""

    folder: Path
    rows: list[WindowResult] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)

    def clear(self) -> None:
        """Take away what a run before left."""
        shutil.rmtree(self.folder / "ranks", ignore_errors=True)
        for name in (WINDOWS, TIMING):
            (self.folder / name).unlink(missing_ok=True)

    def add(self, ranks: WindowRanks, row: WindowResult, timing: Timing) -> None:
        """Write one window's ranks and both tables."""
        write_ranks(self.folder, row.window, ranks)
        self.rows.append(row)
        self.timings.append(timing)
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
