"""Models and sessions that the benchmarks of training share."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.process import Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import Sessions

SINGLE = Rank(index=0, world_size=1)


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
