"""The network of a memory model as a source: its scores are a feature like any other."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Floats32
from dayahead.memory.evidence import CandidateBatch, Source

NETWORK = "network.log_softmax"


class Network(Source):
    """The network's log-softmax over the candidates; `MemoryModel` fills it in."""

    names = (NETWORK,)
    is_share = True

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return room for the feature [B, C, 1]."""
        return np.zeros((*batch.candidates.shape, 1), np.float32)


class NewItems(Source):
    """Whether a candidate is new since the last fit, so that the network does not know it."""

    names = ("network.is_new",)

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the flags [B, C, 1]."""
        is_new = batch.candidates >= N_RESERVED + batch.n_old
        return is_new[..., None].astype(np.float32)


def log_softmax(
    scores_of: Callable[[Int[Tensor, "B C"]], Float[Tensor, "B C"]],
    candidates: Int[Tensor, "B C"],
    n_old: int,
    n_best: int,
) -> Float[Tensor, "B C"]:
    """Return a network's scores of candidates, normalised over the best `n_best` as in training.

    A softmax over the catalogue would differ by a constant for each prefix, and take longer. An
    item that is new since the last fit, to which the network gives no score, has the mean of these.
    """
    is_candidate = candidates > 0
    is_scored = is_candidate & (candidates < N_RESERVED + n_old)
    scores = scores_of(candidates.where(is_scored, 0))
    best = scores[:, :n_best].masked_fill(~is_scored[:, :n_best], -torch.inf)
    sums = best.logsumexp(1, keepdim=True)
    sums = sums.masked_fill(sums == -torch.inf, 0.0)  # none of the best has a score
    logs = (scores - sums).masked_fill(~is_scored, 0.0)
    n_scored = is_scored[:, :n_best].sum(1, keepdim=True)
    means = logs[:, :n_best].sum(1, keepdim=True) / n_scored.clamp(min=1)
    return torch.where(is_candidate & ~is_scored, means, logs)
