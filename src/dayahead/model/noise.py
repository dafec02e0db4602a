"""Swap noise: some inputs are other items of the batch."""

import torch
from jaxtyping import Int
from torch import Tensor

from dayahead.core.columns import PADDING
from dayahead.model.rng import StepRandom


def swapped(items: Int[Tensor, "B W"], draws: StepRandom, probability: float) -> Int[Tensor, "B W"]:
    """Exchange inputs by chance for item ids of the global batch, often ones as often as there.

    Stochastic shared embeddings (Wu et al. 2019), as in Transformers4Rec, whose version changed
    targets too. Only the id is exchanged, not the side features of its event; padding neither is
    exchanged nor comes in.
    """
    pool = draws.items[draws.items != PADDING]  # [N]
    # In float64 no number below 1 times N rounds up to N.
    places = (draws.uniform("swapped_for").double() * len(pool)).long()
    is_swapped = (draws.uniform("is_swapped") < probability) & (items != PADDING)
    return torch.where(is_swapped, pool[places], items)
