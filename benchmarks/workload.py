"""Models and sessions that the benchmarks of training share."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import LoadedBatches, Sessions, shuffled_rows, sorted_rows
from dayahead.train.evaluate import Offered, RankedTargets, evaluate
from dayahead.train.trainers import GradientTrainer

SINGLE = Rank(index=0, world_size=1)
LONGEST = 20


def default_params() -> Params:
    """Return the settings of params.yaml, for one process on the CPU."""
    params = load_params(Path(__file__).parents[1] / "params.yaml")
    return replace(params, compute=replace(params.compute, processes=1, device="cpu"))


def gpt2_params(params: Params) -> Params:
    """Return settings with GPT-2/clm at d 128, 2 layers, 4 heads."""
    model = replace(params.model, architecture="gpt2", d_model=128, n_layer=2, n_head=4)
    return replace(params, model=model, task=replace(params.task, name="clm"))


def build_model(params: Params, max_length: int, shard: Shard = WHOLE) -> NextItemModel:
    """Return a model of items alone, without items yet."""
    return NextItemModel(
        params.model,
        params.task,
        params.loss,
        categoricals={},
        numbers={},
        max_length=max_length,
        seed=1,
        shard=shard,
    )


def equal_sessions(n_sessions: int, length: int, n_items: int) -> Sessions:
    """Return sessions of one length, with uniformly random items."""
    rng = torch.Generator().manual_seed(1)
    items = torch.randint(n_items, (n_sessions * length,), generator=rng) + N_RESERVED
    return Sessions({ITEM_ID: items}, torch.arange(0, len(items) + 1, length))


def zipf_sessions(n_sessions: int, longest: int, n_items: int) -> Sessions:
    """Return sessions of Zipf-popular items; lengths geometric, from 2, mean about 5."""
    rng = np.random.default_rng(1)
    lengths = np.clip(1 + rng.geometric(0.25, n_sessions), 2, longest)
    weights = 1 / np.arange(1, n_items + 1)
    items = rng.choice(n_items, lengths.sum(), p=weights / weights.sum()) + N_RESERVED
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sessions({ITEM_ID: torch.from_numpy(items)}, torch.from_numpy(offsets))


class Pass:
    """One epoch of training, and one pass of evaluation on the last item of each session.

    Args:
        process: this one; it takes its share of each batch.
        params: the model, its task, and the batches of training and evaluation.
        sessions: both passes are over these, of 2 to LONGEST events.
        n_items: of the catalogue; all are candidates.
        shard: which rows of the item table this process holds.
    """

    def __init__(
        self,
        process: Process,
        params: Params,
        sessions: Sessions,
        n_items: int,
        shard: Shard = WHOLE,
    ) -> None:
        self.process = process
        self.model = build_model(params, LONGEST, shard)
        self.trainer = GradientTrainer(self.model, replace(params.training, epochs=1), process)
        self.trainer.grow({ITEM_ID: n_items})
        self.sessions, self.batch_size, self.n_epochs = sessions, params.training.batch_size, 0
        by_length = sorted_rows(sessions.lengths, params.evaluation.batch_size)
        self.shortest_first = LoadedBatches(sessions, by_length, process.rank)
        self.candidates = np.arange(N_RESERVED, N_RESERVED + n_items, dtype=np.int32)
        self.n_targets = np.ones(len(sessions), np.int64)

    def fit(self) -> float | None:
        """Train for one epoch, in an order of its own; return the mean loss."""
        self.n_epochs += 1
        rows = shuffled_rows(self.sessions.lengths, self.batch_size, seed=self.n_epochs)
        epoch = LoadedBatches(self.sessions, rows, self.process.rank)
        return self.trainer.fit("benchmark", [epoch], lambda _: None)

    def evaluate(self) -> RankedTargets:
        """Rank the last item of each session among all items."""
        return evaluate(
            self.model, self.shortest_first, self.n_targets, Offered(self.candidates), self.process
        )
