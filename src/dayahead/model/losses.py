"""The loss of the settings, and the full softmax without ever holding all of its logits."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import linear_cross_entropy

from dayahead.config.params import LossConfig
from dayahead.model.negatives import Negatives
from dayahead.model.output import OutputLayer
from dayahead.model.sampled_losses import sampled_loss
from dayahead.model.sharded_softmax import shared_softmax_loss

BYTES_PER_LOGIT = 4


def catalogue_loss(
    config: LossConfig,
    hidden: Float[Tensor, "T d"],
    catalogue: OutputLayer,
    targets: Int[Tensor, " T"],
    negatives: Negatives | None,
) -> Float[Tensor, ""]:
    """Sum of the loss over targets, float32; 0 without targets, but it reaches every input.

    Scores are divided by the temperature. `negatives` are None for the full softmax.
    """
    hidden = hidden / config.temperature
    catalogue = catalogue.at_temperature(config.temperature)
    if len(targets) == 0 and catalogue.shard.is_whole:
        return (hidden.sum() + catalogue.table.sum() + catalogue.bias.sum()).float() * 0.0
    if negatives is not None:
        loss = sampled_loss(config, hidden, catalogue, targets, negatives)
    elif catalogue.shard.is_whole:
        loss = _softmax_loss(hidden, catalogue, targets, config.logits_budget_mib)
    else:
        loss = _shared_loss(hidden, catalogue, targets, config.logits_budget_mib)
    if config.label_smoothing:
        loss = loss + config.label_smoothing * _lead(hidden, catalogue, targets)
    return loss


def _softmax_loss(
    hidden: Float[Tensor, "T d"],
    catalogue: OutputLayer,
    targets: Int[Tensor, " T"],
    logits_budget_mib: int,
) -> Float[Tensor, ""]:
    """Sum over targets of the cross entropy with a softmax over the items.

    States are taken in chunks whose logits fit the budget, or are no more than the table has
    values.
    """
    states, table, bias = _as_multiplied(hidden, catalogue.table, catalogue.bias)
    loss = linear_cross_entropy(
        states,
        table,
        targets,
        linear_bias=bias,
        # A sum kept in bfloat16 is off by up to .4 %; in float32 it is a third faster.
        reduction="sum" if states.dtype == torch.float32 else "none",
        options=LinearCrossEntropyOptions(
            batch_chunk_size=_rows_per_chunk(len(table), table.shape[1], logits_budget_mib),
            chunking_method=None,
            acc_policy="compact",
        ),
    )
    return loss.float().sum()


def _shared_loss(
    hidden: Float[Tensor, "T d"],
    catalogue: OutputLayer,
    targets: Int[Tensor, " T"],
    logits_budget_mib: int,
) -> Float[Tensor, ""]:
    """The same where rows are shared out: its part that is this process's."""
    shard = catalogue.shard
    (states, every), _ = shard.all_gather(hidden, targets)
    states, table, bias = _as_multiplied(states, catalogue.table, catalogue.bias)
    n_own = catalogue.n_items // shard.world_size  # or one more, but all must take as many chunks
    rows_per_chunk = _rows_per_chunk(n_own, states.shape[1], logits_budget_mib)
    return shared_softmax_loss(states, table, bias, every, shard, rows_per_chunk)


def _as_multiplied(*parts: Tensor) -> list[Tensor]:
    """What autocast would multiply, which passes fused losses by."""
    device = parts[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(parts)
    return [part.to(torch.get_autocast_dtype(device)) for part in parts]


def _rows_per_chunk(n_items: int, dim: int, logits_budget_mib: int) -> int:
    """Rows of hidden states whose logits are computed at once.

    With fewer than `dim`, the passes over the table and its gradient take longer than the products:
    at a million items four to eight times as long as the budget of a cache would have it.
    """
    return max(dim, logits_budget_mib * 2**20 // (BYTES_PER_LOGIT * n_items))


def _lead(
    hidden: Float[Tensor, "T d"], catalogue: OutputLayer, targets: Int[Tensor, " T"]
) -> Float[Tensor, ""]:
    """Sum over targets of the target's score above the mean score.

    A share of it, added to a cross entropy, mixes the target with the uniform distribution over
    the items (label smoothing, Szegedy et al. 2016) and needs no logits: the mean log-probability
    is (mean score - logsumexp), and logsumexp = loss + target's score.
    """
    above = catalogue.scores_of(targets, hidden) - catalogue.mean_scores(hidden)
    return above.float().sum()
