"""results/ as a run writes it: per window the ranks, predictions and attention, and two tables."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from dayahead.core.columns import N_RESERVED, POSITION, RANK, SESSION_ID, TARGET
from dayahead.core.errors import ConfigError
from dayahead.core.files import read_json, write_csv, write_json, write_parquet, write_text
from dayahead.distributed.process import Rank
from dayahead.metrics.lists import Figures
from dayahead.metrics.metrics import window_metrics
from dayahead.model.next_item import NextItemModel
from dayahead.outputs.lists import add_lists, start_lists
from dayahead.outputs.tables import (
    WindowRanks,
    WindowResult,
    read_ranks,
    window_result,
    write_ranks,
    write_windows,
)
from dayahead.train.batches import Sessions
from dayahead.train.evaluate import RankedTargets
from dayahead.train.evaluated_lists import EvaluatedLists

WINDOWS = "windows.csv"
TIMING = "timing.csv"
EVIDENCE = "evidence.csv"
LISTS = {
    "predictions": (
        "<window>.parquet, where evaluation.predictions is above 0: session_id, position (where "
        "evaluation.positions is all), target (catalogue index), target_item (raw id), rank (null: "
        "no candidate), items (raw ids, best first; among equal scores the lower catalogue index) "
        "and their scores.\n"
    ),
    "attention": (
        "<window>.parquet, for windows that hold a session of evaluation.attention_of: session_id, "
        "layer, head, query (position that attends), keys (positions attended to) and their "
        "weights, which sum to 1. Position 0 is the session's first item, those of its past are "
        "below 0, and the last target's own holds a mask where the task puts one there.\n"
    ),
    "profile": (
        "Where profile.window names a window: phases.csv (where the time of its fit and evaluation "
        "goes), and for each loop over steps a trace (open it at https://ui.perfetto.dev) and "
        "its operators.\n"
    ),
}
"""Folders that always exist, because DVC expects them, and the text of their README.txt."""
TABLES = ("ranks", "predictions", "attention")
"""Folders of the tables that an evaluation writes, one file per window."""
_SUMMARY = "evaluated.json"


@dataclass(frozen=True)
class Timing:
    """Clock times of a window, which differ from run to run, and the size of the state."""

    window: str
    fit_seconds: float
    fit_sessions_per_second: float
    """Sessions times epochs, per second."""
    evaluate_seconds: float
    evaluate_sessions_per_second: float
    state_bytes: int
    """Bytes of the state that the next fit starts from."""


@dataclass(frozen=True)
class EvaluatedWindow:
    """Everything that is recorded of an evaluated window; metrics at any cutoff follow from it."""

    window: str
    ranks: WindowRanks
    train_ranks: NDArray[np.int32]
    """Ranks of targets in the sessions just fitted; empty where none were evaluated."""
    train_loss: float | None
    timing: Timing
    predictions: pa.Table | None = None
    attention: pa.Table | None = None
    lists: EvaluatedLists | None = None
    """What the lists of evaluation.lists show, if there are any."""

    def write(self, folder: Path) -> None:
        """Write it into a folder of its own, its lists laid out as in results/."""
        self.write_lists(folder)
        summary = {
            "window": self.window,
            "train_ranks": self.train_ranks.tolist(),
            "train_loss": self.train_loss,
            "timing": asdict(self.timing),
            "lists": None if self.lists is None else asdict(self.lists),
        }
        write_json(folder / _SUMMARY, summary)

    def write_lists(self, results: Path) -> None:
        """Write ranks, predictions and attention, each whole."""
        write_ranks(results, self.window, self.ranks)
        for name, table in (("predictions", self.predictions), ("attention", self.attention)):
            if table is not None:
                write_parquet(results / name / f"{self.window}.parquet", table)

    @classmethod
    def read(cls, folder: Path, window: str) -> "EvaluatedWindow":
        """Read what `write` wrote of this window, without predictions and attention.

        Raises:
            Exception: ValueError, LookupError and the like where it is not what `write` wrote.
        """
        summary = read_json(folder / _SUMMARY)
        if summary["window"] != window:
            raise ValueError(f"{_SUMMARY}: expected window {window}, found {summary['window']}")
        loss, lists = summary["train_loss"], summary["lists"]
        return cls(
            window=window,
            ranks=read_ranks(folder, window),
            train_ranks=np.array(summary["train_ranks"], np.int32),
            train_loss=None if loss is None else float(loss),
            timing=TypeAdapter(Timing).validate_python(summary["timing"]),
            lists=None if lists is None else EvaluatedLists(**lists),
        )

    def result(self, cutoffs: Sequence[int], packaged: Sequence[str] = ()) -> WindowResult:
        """Return its row of windows.csv."""
        has_train = len(self.train_ranks) > 0
        train = window_metrics(self.train_ranks, cutoffs, packaged) if has_train else {}
        return window_result(self.window, self.ranks, cutoffs, self.train_loss, train, packaged)


@dataclass
class ResultsFolder:
    """results/ of the current run; its tables get a row after each window."""

    folder: Path
    cutoffs: Sequence[int]
    list_names: Sequence[str] = ()
    """Names of the figures of lists.csv; none: no lists."""
    packaged: Sequence[str] = ()
    """Metrics of other packages."""
    rows: list[WindowResult] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)
    """Figures of the lists of the window added last; empty where there are none."""

    def clear(self) -> None:
        """Remove what an earlier run left, and describe what the folders will hold."""
        for name in ("ranks", "baselines", *LISTS):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in (WINDOWS, TIMING, EVIDENCE):
            (self.folder / name).unlink(missing_ok=True)
        for name, text in LISTS.items():
            write_text(self.folder / name / "README.txt", text)
        start_lists(self.folder, self.list_names)

    def add(self, evaluated: EvaluatedWindow) -> WindowResult:
        """Add a window's rows to both tables; return its row of windows.csv."""
        self.rows.append(evaluated.result(self.cutoffs, self.packaged))
        n_before = len(self.rows) - 1
        write_windows(self.folder / WINDOWS, self.rows, n_before)
        timing = asdict(evaluated.timing)
        rows = [list(timing.values())] if n_before else [list(timing), list(timing.values())]
        write_csv(self.folder / TIMING, rows, is_longer=n_before > 0)
        self.figures = {}
        if evaluated.lists is not None:
            row = evaluated.lists.row(evaluated.window, self.list_names)
            self.figures = row.figures
            add_lists(self.folder, row)
        return self.rows[-1]


def prediction_table(ranks: WindowRanks, ranked: RankedTargets, raw: pa.ChunkedArray) -> pa.Table:
    """Return the items that a model would have recommended, target by target.

    `ranked` has the targets of `ranks`; `raw` holds the raw id of every item of the windows, by
    index.
    """
    values = raw.combine_chunks()
    n_targets, top_k = ranked.top_items.shape
    offsets = pa.array(np.arange(n_targets + 1) * top_k, pa.int32())
    items = values.take(pa.array(ranked.top_items.ravel() - N_RESERVED))
    columns = {
        SESSION_ID: ranks.session_ids,
        POSITION: None if ranks.positions is None else pa.array(ranks.positions, pa.int32()),
        TARGET: pa.array(ranks.targets, pa.int32()),
        "target_item": values.take(pa.array(ranks.targets - N_RESERVED)),
        RANK: pa.array(ranks.ranks, pa.int32(), mask=ranks.ranks == 0),
        "items": pa.ListArray.from_arrays(offsets, items),
        "scores": pa.ListArray.from_arrays(offsets, pa.array(ranked.top_scores.ravel())),
    }
    return pa.table({name: values for name, values in columns.items() if values is not None})


def attention_table(
    model: NextItemModel, table: pa.Table, past_length: int, device: torch.device
) -> pa.Table:
    """Return the attention weights of the pass that scores each session's last item.

    There is a row for each session of a window file's `table`, its layers, heads and positions
    that attend, in this order.
    """
    sessions = Sessions.from_table(table, past_length)
    batch = sessions.gather(torch.arange(len(sessions)), Rank(0, 1)).to(device)
    layers, n_of_row = model.attention(batch.columns, batch.lengths - 1)
    weights = torch.stack(layers, 1).float().cpu()  # [B, N, H, L, L]
    n_read, n_past = n_of_row.cpu(), batch.global_past.cpu()
    steps = torch.arange(weights.shape[-1])
    is_read = (steps < n_read[:, None])[:, None, None].expand(weights.shape[:-1])
    row, layer, head, query = is_read.nonzero(as_tuple=True)
    is_key = steps < n_read[row][:, None]  # [R, L]
    offsets = pa.array(torch.nn.functional.pad(n_read[row].cumsum(0), (1, 0)).int().numpy())
    # Positions count from the session's first item, so those of its past are negative.
    keys = (steps - n_past[row][:, None])[is_key]
    values = weights[row, layer, head, query][is_key]
    return pa.table(
        {
            SESSION_ID: table[SESSION_ID].take(pa.array(row.numpy())),
            "layer": layer.int().numpy(),
            "head": head.int().numpy(),
            "query": (query - n_past[row]).int().numpy(),
            "keys": pa.ListArray.from_arrays(offsets, pa.array(keys.int().numpy())),
            "weights": pa.ListArray.from_arrays(offsets, pa.array(values.numpy())),
        }
    )


def check_attention(model: NextItemModel | None) -> None:
    """Check that a network has attention weights to write.

    Raises:
        ConfigError: the architecture has none, or the task does not use them.
    """
    if model is None:
        raise ConfigError(
            "params.yaml: evaluation.attention_of: a baseline has no attention; empty "
            "the list, or set model.architecture to gpt2, xlnet or bert"
        )
    if model.task.attention == "permutation":
        raise ConfigError(
            "params.yaml: evaluation.attention_of: with task.name: plm predictions come from "
            "XLNet's query stream, whose weights are not returned; empty the list, or set "
            "task.name to mlm or clm"
        )
    device = model.bias.device
    inputs = torch.ones(1, 2, model.config.d_model, device=device)
    with torch.no_grad():
        model.body.attention_weights(inputs, torch.tensor([2], device=device))
