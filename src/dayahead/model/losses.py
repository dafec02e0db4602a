"""The loss of the settings, and the full softmax without ever holding all of its logits."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import linear_cross_entropy
from torch.utils.checkpoint import checkpoint

from dayahead.config.params import LossConfig
from dayahead.model.catalogue import Catalogue
from dayahead.model.negatives import Negatives
from dayahead.model.sampled import sampled_loss

BYTES_PER_LOGIT = 4


def catalogue_loss(
    config: LossConfig,
    hidden: Float[Tensor, "T d"],
    catalogue: Catalogue,
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
        loss = _shared_softmax_loss(hidden, catalogue, targets, config.logits_budget_mib)
    if config.label_smoothing:
        loss = loss + config.label_smoothing * _lead(hidden, catalogue, targets)
    return loss


def _softmax_loss(
    hidden: Float[Tensor, "T d"],
    catalogue: Catalogue,
    targets: Int[Tensor, " T"],
    logits_budget_mib: int,
) -> Float[Tensor, ""]:
    """Sum over targets of the cross entropy with a softmax over the items.

    States are taken in chunks whose logits fit the budget, or are no more than the table has
    values.
    """
    parts = [hidden, catalogue.table, catalogue.bias]
    in_bfloat16 = torch.is_autocast_enabled(hidden.device.type)
    if in_bfloat16:
        # Autocast passes linear_cross_entropy by.
        parts = [part.to(torch.get_autocast_dtype(hidden.device.type)) for part in parts]
    states, table, bias = parts
    loss = linear_cross_entropy(
        states,
        table,
        targets,
        linear_bias=bias,
        # A sum kept in bfloat16 is off by up to .4 %; in float32 it is a third faster.
        reduction="none" if in_bfloat16 else "sum",
        options=LinearCrossEntropyOptions(
            batch_chunk_size=_rows_per_chunk(table, logits_budget_mib),
            chunking_method=None,
            acc_policy="compact",
        ),
    )
    return loss.float().sum()


def _shared_softmax_loss(
    hidden: Float[Tensor, "T d"],
    catalogue: Catalogue,
    targets: Int[Tensor, " T"],
    logits_budget_mib: int,
) -> Float[Tensor, ""]:
    """The same where rows are shared out.

    Each process sums over its own rows for the targets of all, and the sums' logarithms cross over
    (Shoeybi et al. 2019). A chunk's logits are computed again for the gradient.
    """

    def log_sums(states: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        return catalogue.own_scores(states).float().logsumexp(1)

    every, n_of = catalogue.shard.gathered(hidden)
    chunks = torch.split(every, _rows_per_chunk(catalogue.table, logits_budget_mib))
    own = torch.cat(
        [checkpoint(log_sums, c, use_reentrant=False, preserve_rng_state=False) for c in chunks]
    )
    parts = catalogue.shard.handed_back(own[:, None], n_of, [1] * catalogue.shard.world)
    log_totals = torch.cat(parts, dim=1).logsumexp(1)  # [T]
    return (log_totals - catalogue.scores_of(targets, hidden)).sum()


def _rows_per_chunk(table: Float[Tensor, "n d"], logits_budget_mib: int) -> int:
    """Rows of hidden states whose logits are computed at once.

    With fewer than d, the passes over the table and its gradient take longer than the products:
    at a million items four to eight times as long as the budget of a cache would have it.
    """
    n_items, dim = table.shape
    return max(dim, logits_budget_mib * 2**20 // (BYTES_PER_LOGIT * n_items))


def _lead(
    hidden: Float[Tensor, "T d"], catalogue: Catalogue, targets: Int[Tensor, " T"]
) -> Float[Tensor, ""]:
    """Sum over targets of the target's score above the mean score.

    A share of it, added to a cross entropy, mixes the target with the uniform distribution over
    the items (label smoothing, Szegedy et al. 2016) and needs no logits: the mean log-probability
    is (mean score - logsumexp), and logsumexp = loss + target's score.
    """
    above = catalogue.scores_of(targets, hidden) - catalogue.mean_scores(hidden)
    return above.float().sum()
