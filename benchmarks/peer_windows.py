"""Who is compared in `peer_accuracy.py`: our models, and a peer's program, window by window."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.ragged import row_of_each
from dayahead.distributed.process import ALONE
from dayahead.metrics.metrics import Ranks
from dayahead.model.model import CountingModel
from dayahead.model.output_layer import Columns, Scorer
from dayahead.train.batches import Sessions
from dayahead.train.data_loading import Loader
from dayahead.train.evaluate import Offered, evaluate
from dayahead.train.run import Run
from dayahead.train.study import Study
from dayahead.windows.folder import Window, WindowFolder
from worker import Worker

Candidates = NDArray[np.int32]
"""Catalogue indices, ascending."""


class Side(Protocol):
    """A model that is fitted and evaluated window by window."""

    seconds: float
    """User time of all fits and evaluations so far."""

    def fit(self, window: Window) -> None:
        """Go on with a window's train sessions."""

    def ranks(self, window: Window, candidates: Candidates) -> Ranks:
        """Rank the targets of a window; 0 where a target is no candidate."""


class Ours:
    """A model of the settings, by the code of the stage."""

    def __init__(self, params: Params, folder: WindowFolder) -> None:
        self.run = Run(Study(params=params, windows=folder.folder), ALONE, folder.windows[0])
        self.seconds = 0.0

    def fit(self, window: Window) -> None:
        """Go on with a window's train sessions."""
        self.run.add_candidates(window)
        start = os.times().user
        self.last = self.run.fit([window])
        self.seconds += os.times().user - start

    def ranks(self, window: Window, candidates: Candidates) -> Ranks:
        """Rank the targets of a window."""
        assert np.array_equal(candidates, self.run.candidates), "not the candidates of the protocol"
        start = os.times().user
        evaluated = self.run.evaluate(window, self.last)
        self.seconds += os.times().user - start
        return evaluated.ranks.ranks


@dataclass
class Peer:
    """A peer's program, which trains and scores; its scores are ranked by our code.

    Args:
        start: starts the program, untrained.
        folder: the windows.
        params: settings of the evaluation; of a model that reads nothing but items.
        epochs: of each fit.
        exchange: folder for files that both programs read.
        is_from_scratch: start untrained at each window, and train on all windows so far.
    """

    start: Callable[[], Worker]
    folder: WindowFolder
    params: Params
    epochs: int
    exchange: Path
    is_from_scratch: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Start the program."""
        self.loader = Loader(self.folder, self.params)
        self.worker = self.start()

    def fit(self, window: Window) -> None:
        """Train on a window's train sessions, or on those of all windows up to it."""
        windows = [window]
        if self.is_from_scratch and window.position:
            self.worker.close()
            self.worker = self.start()
            windows = list(self.folder.windows[: window.position + 1])
        tables = [self.folder.read(each, "train", [ITEM_ID]) for each in windows]
        sessions = Sessions.from_table(pa.concat_tables(tables))
        path = self._write(sessions.columns[ITEM_ID], sessions.offsets)
        answer = self.worker.do("fit", sessions=path, epochs=self.epochs)
        self.seconds += answer.user_seconds

    def ranks(self, window: Window, candidates: Candidates) -> Ranks:
        """Rank the targets of a window by the program's scores."""
        batches = self.loader.evaluation_batches(window, ALONE.rank)
        targets = self.loader.targets_of(self.loader.evaluation_sessions(window))
        model = ScoredElsewhere(self._scores)
        return evaluate(model, batches, targets.counts, Offered(candidates), ALONE).ranks

    def _scores(self, items: Int[Tensor, " N"], offsets: Int[Tensor, " S1"]) -> Tensor:
        """Return the program's scores of all items after sessions, [S, n_items]."""
        scores = self.exchange / "scores.npy"
        path = self._write(items, offsets)
        answer = self.worker.do("score", sessions=path, scores=str(scores))
        self.seconds += answer.user_seconds
        return torch.from_numpy(np.load(scores))

    def _write(self, items: Tensor, offsets: Tensor) -> str:
        path = self.exchange / "sessions.npz"
        np.savez(path, items=(items - N_RESERVED).numpy(), offsets=offsets.numpy())
        return str(path)

    def close(self) -> None:
        """End the program."""
        self.worker.close()


class ScoredElsewhere(CountingModel):
    """A model whose scores come from another program; it counts nothing.

    Args:
        scores: of all items after sessions: flat vocabulary indices, and where sessions begin.
    """

    def __init__(self, scores: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.scores = scores

    def scorer(self, candidates: Int[Tensor, " C"], *, overwrites: bool = False) -> Scorer:
        """Return a function that scores the candidates."""
        del overwrites

        def scored(columns: Columns, n_known: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
            rows = torch.from_numpy(row_of_each(n_known.numpy()))
            offsets = torch.nn.functional.pad(n_known.cumsum(0), (1, 0))
            steps = torch.arange(len(rows)) - offsets[rows]
            found = self.scores(columns[ITEM_ID][rows, steps], offsets)
            return found[:, candidates - N_RESERVED]

        return scored
