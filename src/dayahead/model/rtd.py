"""`rtd`: replaced-token detection, a generator's samples and the discriminator that finds them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dayahead.distributed.process import to_device
from dayahead.model.output_layer import OutputLayer, States, rows_per_chunk
from dayahead.model.rng import StepRandom

N_OFFSETS = 2**16
"""Number of offsets in the shared noise at which a sample's window may start."""


class Discriminator(nn.Module):
    """Tells replaced items from original ones (ELECTRA, Clark et al. 2020).

    The generator is the model itself, with `mlm`'s masks: items sampled from its predictions
    replace the masked ones. Only the item is replaced; the side features of its event stay. It
    shares the generator's backbone: with one of its own, its loss would not train the model that
    scores items.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, 1))

    def forward(
        self, hidden: Float[Tensor, "E D"], is_replaced: Bool[Tensor, " E"]
    ) -> Float[Tensor, ""]:
        """Sum over events of the binary cross entropy, float32."""
        scores = self.head(hidden)[:, 0].float()
        return binary_cross_entropy_with_logits(scores, is_replaced.float(), reduction="sum")


@torch.no_grad()
def generator_samples(
    states: States, layer: OutputLayer, offsets: Tensor, rng: StepRandom, logits_budget_mib: int
) -> Int[Tensor, " T"]:
    """Sample an item for each state from the softmax over its scores.

    The Gumbel-max trick: the argmax of scores plus Gumbel noise is such a sample (Gumbel 1954).
    Rounding differences between processes do not change it, as they would a position in the
    cumulative sum of a million probabilities. T x n new random numbers would take longer than the
    training step, so each sample uses a window of one long strip of noise, at a random offset
    (`offsets` [T], uniform in [0, 1)); by itself it has exactly the softmax's distribution.
    """
    shard, n_items = layer.shard, layer.n_items
    if len(states) == 0 and shard.is_whole:
        return offsets.new_empty(0, dtype=torch.int64)
    # In float64: the largest of a million float32 numbers below 1 would often be equal.
    uniform = torch.rand(
        n_items + N_OFFSETS, dtype=torch.float64, generator=rng.generator("guess_noise")
    )
    strip = to_device(-(-uniform.clamp(min=2**-54).log()).log().float(), states.device)
    windows = strip.unfold(0, n_items, 1)[:, shard.local_slice(0, n_items)]
    (states, begins), n_of = shard.all_gather(states, (offsets * N_OFFSETS).long())
    n_rows = rows_per_chunk(len(layer.table), logits_budget_mib)
    best = [
        (layer.own_scores(chunk).float() + windows.index_select(0, begin)).max(1)
        for chunk, begin in zip(*(torch.split(t, n_rows) for t in (states, begins)), strict=True)
    ]
    # Scores and indices travel in one tensor; float64 holds both exactly.
    found = torch.cat([torch.stack([each.values.double(), each.indices], 1) for each in best])
    parts = shard.send_back(found, n_of, [2] * shard.world_size)
    scores, own = torch.stack(parts).unbind(2)  # [w, T]
    holders = scores.argmax(0)
    # Row i of rank r is item i * world_size + r (see `Shard`).
    return own.gather(0, holders[None])[0].long() * shard.world_size + holders
