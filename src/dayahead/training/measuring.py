"""Ranks of a window's targets, computed where the scores are."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dayahead.columns import ITEM_ID
from dayahead.data.batches import Batches
from dayahead.evaluation.ranking import target_ranks
from dayahead.model.counts import CountModel
from dayahead.model.next_item import NextItemModel
from dayahead.training.processes import Process


@dataclass(frozen=True)
class Measured:
    """Every session of a window, in the order of its file."""

    targets: NDArray[np.int32]
    """Catalogue indices."""
    ranks: NDArray[np.int64]
    """1 is best, 0 where the target was no candidate."""


def measure(
    model: NextItemModel | CountModel,
    batches: Batches,
    n_sessions: int,
    candidates: NDArray[np.int32],
    process: Process,
) -> Measured:
    """Rank the last item of each session among the candidates, given the items before it.

    Each process ranks its own sessions; sums over processes put them together exactly.

    Args:
        model: fitted on earlier windows only.
        batches: one pass over the window.
        n_sessions: sessions in that pass.
        candidates: catalogue indices, ascending.
        process: this one.

    Raises:
        ScoreError: a score is not finite.
    """
    wanted = torch.from_numpy(candidates).long()
    with_end = torch.nn.functional.pad(wanted, (0, 1))  # what the search finds behind the last
    scorer = model.scorer(wanted)
    found = torch.zeros(2, n_sessions, dtype=torch.int64, device=process.device)
    for batch in batches:
        own = batch.without_empty_rows()
        if len(own.lengths) == 0:
            continue
        targets = own.columns[ITEM_ID].gather(1, (own.lengths - 1)[:, None])[:, 0]
        columns = torch.searchsorted(wanted, targets)
        columns = columns.where(with_end[columns] == targets, -1)
        placed = own.to(process.device)
        scores = scorer(placed.columns, placed.lengths - 1)
        ranks = target_ranks(scores.to(process.device), columns.to(process.device))
        found[:, own.sessions] = torch.stack([targets.to(process.device), ranks])
    found = process.summed(found).cpu()
    return Measured(found[0].numpy().astype(np.int32), found[1].numpy())
