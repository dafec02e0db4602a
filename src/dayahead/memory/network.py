"""The network of a memory model as a source: its scores are a feature like any other."""

import numpy as np

from dayahead.memory.evidence import CandidateBatch, Source
from dayahead.memory.table import Floats32

NETWORK = "network.log_softmax"


class Network(Source):
    """The network's log-softmax over the candidates; `MemoryModel` fills it in."""

    names = (NETWORK,)
    is_share = True

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return room for the feature [B, C, 1]."""
        return np.zeros((*batch.candidates.shape, 1), np.float32)
