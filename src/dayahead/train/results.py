"""What a run writes per measured window: ranks, a row of windows.csv, a row of timing.csv."""

import csv
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.files import read_json, write_json, write_text, written_whole
from dayahead.core.store import linked
from dayahead.metrics.metrics import window_metrics
from dayahead.metrics.tables import (
    WindowRanks,
    WindowResult,
    read_ranks,
    window_result,
    write_ranks,
    write_windows,
)
from dayahead.train import attention, predictions
from dayahead.train.attention import write_attention
from dayahead.train.predictions import write_predictions

WINDOWS = "windows.csv"
TIMING = "timing.csv"
_NOTE = "measured.json"
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
class EvaluatedWindow:
    """All that is kept of a window: its metrics, at whatever cutoffs, follow from it."""

    window: str
    ranks: WindowRanks
    train_ranks: NDArray[np.int32]
    """Of sessions that were just fitted; empty where none were measured."""
    train_loss: float | None
    timing: Timing
    predictions: pa.Table | None = None
    attention: pa.Table | None = None

    def write(self, folder: Path) -> None:
        """Write it into a folder of its own, laid out as results/ is."""
        write_ranks(folder, self.window, self.ranks)
        if self.predictions is not None:
            write_predictions(folder, self.window, self.predictions)
        if self.attention is not None:
            write_attention(folder, self.window, self.attention)
        note = {
            "window": self.window,
            "train_ranks": self.train_ranks.tolist(),
            "train_loss": self.train_loss,
            "timing": asdict(self.timing),
        }
        write_json(folder / _NOTE, note)

    @classmethod
    def read(cls, folder: Path) -> "EvaluatedWindow":
        """Read what metrics follow from; the lists stay where they are."""
        note = read_json(folder / _NOTE)
        return cls(
            window=note["window"],
            ranks=read_ranks(folder, note["window"]),
            train_ranks=np.array(note["train_ranks"], np.int32),
            train_loss=note["train_loss"],
            timing=Timing(**note["timing"]),
        )

    def result(self, cutoffs: Sequence[int]) -> WindowResult:
        """Sum it up as a row of windows.csv."""
        train = window_metrics(self.train_ranks, cutoffs) if len(self.train_ranks) else {}
        return window_result(self.window, self.ranks, cutoffs, self.train_loss, train)


@dataclass
class ResultsFolder:
    """The results folder of the run going on; tables are rewritten whole after each window."""

    folder: Path
    cutoffs: Sequence[int]
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

    def add(self, folder: Path) -> tuple[WindowResult, Timing]:
        """Take over one window's ranks and lists as `MeasuredWindow.write` left them."""
        measured = EvaluatedWindow.read(folder)
        for path in folder.glob(f"*/{measured.window}.parquet"):
            linked(path, self.folder / path.relative_to(folder))
        self.rows.append(measured.result(self.cutoffs))
        self.timings.append(measured.timing)
        write_windows(self.folder / WINDOWS, self.rows)
        self._write_timings()
        return self.rows[-1], measured.timing

    def _write_timings(self) -> None:
        with (
            written_whole(self.folder / TIMING) as temporary,
            temporary.open("w", newline="") as file,
        ):
            names = [entry.name for entry in fields(Timing)]
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(timing) for timing in self.timings)
