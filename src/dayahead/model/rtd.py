"""`rtd`: items replaced by a generator's guesses, and the body that finds out which."""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dayahead.config.params import ModelConfig, TaskConfig
from dayahead.core.errors import ConfigError
from dayahead.model.backbones import Body
from dayahead.model.output import OutputLayer
from dayahead.model.prediction_positions import Need
from dayahead.model.rng import StepRandom

N_PLACES = 2**16
"""Of a strip of noise, at which that of a guess may begin."""
BYTES_PER_SCORE = 4


class Discriminator(nn.Module):
    """Tells replaced items from original ones (ELECTRA, Clark et al. 2020).

    The generator is the model itself, asked as `mlm` asks: what it guesses for the masked items
    takes their place. Only the item is exchanged; the side features of its event stay.
    """

    def __init__(self, d_model: int, body: Body | None) -> None:
        """Build the head; `body` is its own, None where the generator's serves both."""
        super().__init__()
        self.body = body
        self.head = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, 1))

    def forward(
        self, hidden: Float[Tensor, "E D"], is_replaced: Bool[Tensor, " E"]
    ) -> Float[Tensor, ""]:
        """Sum over events of the binary cross entropy, float32."""
        scores = self.head(hidden)[:, 0].float()
        return binary_cross_entropy_with_logits(scores, is_replaced.float(), reduction="sum")


class Generator(nn.Module):
    """A body of a share of the width, between projections of its own.

    A width is a multiple of the heads, and even: XLNet's places are pairs of sine and cosine.
    """

    def __init__(self, config: ModelConfig, task: TaskConfig, *, max_length: int) -> None:
        """Build the body and its projections.

        Raises:
            ConfigError: the architecture cannot be that narrow.
        """
        super().__init__()
        unit = math.lcm(config.n_head, 2)
        width = max(1, round(task.rtd_generator_share * config.d_model / unit)) * unit
        narrow = replace(config, d_model=width)
        self.project_in = nn.Linear(config.d_model, width)
        try:
            self.body = Body(narrow, causal=False, max_length=max_length)
        except ConfigError as error:
            raise ConfigError(
                f"task.rtd_generator_share ({task.rtd_generator_share}) makes a generator "
                f"{width} wide: {error}"
            ) from None
        self.project_out = nn.Linear(width, config.d_model)

    def forward(
        self, inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B L D"]:
        """Run as a body of full width would."""
        written: Tensor = self.project_out(self.body(self.project_in(inputs), lengths))
        return written

    def attention_weights(
        self, inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]
    ) -> list[Float[Tensor, "B H L L"]]:
        """Those of the narrow body (see `Body.attention_weights`)."""
        return self.body.attention_weights(self.project_in(inputs), lengths)


def bodies(
    config: ModelConfig, task: TaskConfig, needs: Need, max_length: int
) -> tuple[Body | Generator, Discriminator | None]:
    """What answers, and for `rtd` what finds its guesses out."""
    body = Body(
        config,
        causal=needs == "causal",
        max_length=max_length,
        has_queries=needs == "permutation",
    )
    if task.name != "rtd":
        return body, None
    if task.rtd_tied_generator:
        return body, Discriminator(config.d_model, body=None)
    return Generator(config, task, max_length=max_length), Discriminator(config.d_model, body)


@torch.no_grad()
def guesses(
    hidden: Float[Tensor, "T d"],
    catalogue: OutputLayer,
    places: Float[Tensor, " T"],
    draws: StepRandom,
    *,
    logits_budget_mib: int,
) -> Int[Tensor, " T"]:
    """Items drawn by the softmax over their scores, one for each hidden state.

    The item of the highest score plus Gumbel noise is such a draw (Gumbel 1954), and no rounding
    error between processes moves it, as it would a place in the sum of a million probabilities.
    T x n new numbers would take longer than the step: a guess's noise is a window of one long
    strip, from a place of its own (`places`, uniform in [0, 1)). So each guess by itself has
    exactly the softmax's distribution. Chunks of scores fit the budget.
    """
    shard = catalogue.shard
    if len(hidden) == 0 and shard.is_whole:
        return places.new_empty(0, dtype=torch.int64)
    n_items = catalogue.n_items
    n_numbers = n_items + N_PLACES
    # In float32 the largest of a million would be equal.
    uniform = torch.rand(n_numbers, dtype=torch.float64, generator=draws.generator("guess_noise"))
    strip = -(-uniform.clamp(min=2**-54).log()).log().float().to(hidden.device)
    windows = strip.unfold(0, n_items, 1)[:, shard.local_slice(0, n_items)]
    (states, begins), n_of = shard.all_gather(hidden, (places * N_PLACES).long())
    n_rows = max(1, logits_budget_mib * 2**20 // (BYTES_PER_SCORE * len(catalogue.table)))
    chunks = zip(torch.split(states, n_rows), torch.split(begins, n_rows), strict=True)
    best = [
        (catalogue.own_scores(part).float() + windows.index_select(0, begin)).max(1)
        for part, begin in chunks
    ]
    found = torch.cat([torch.stack([each.values.double(), each.indices], 1) for each in best])
    returned = shard.send_back(found, n_of, [2] * shard.world_size)
    scores, own = torch.stack(returned).unbind(2)  # [w, T]
    holders = scores.argmax(0)
    return own.gather(0, holders[None])[0].long() * shard.world_size + holders
