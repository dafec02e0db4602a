"""The loss of the settings, and the full softmax without ever holding all of its logits."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import linear_cross_entropy

from dayahead.config.params import LossConfig
from dayahead.model.negatives import Negatives
from dayahead.model.sampled import sampled_loss

BYTES_PER_LOGIT = 4


def catalogue_loss(
    config: LossConfig,
    hidden: Float[Tensor, "T d"],
    table: Float[Tensor, "n d"],
    bias: Float[Tensor, " n"],
    targets: Int[Tensor, " T"],
    negatives: Negatives | None,
) -> Float[Tensor, ""]:
    """Sum of the loss over targets, float32; 0 without targets, but it reaches every input.

    Scores are (hidden . row + bias) / temperature. `negatives` are None for the full softmax.
    """
    hidden, bias = hidden / config.temperature, bias / config.temperature
    if negatives is None:
        return softmax_loss(
            hidden,
            table,
            bias,
            targets,
            label_smoothing=config.label_smoothing,
            logits_budget_mib=config.logits_budget_mib,
        )
    if len(targets) == 0:
        return _nothing(hidden, table, bias)
    loss = sampled_loss(config, hidden, table, bias, targets, negatives)
    if config.label_smoothing:
        # Of the catalogue's mean score nothing has to be estimated.
        loss = loss + config.label_smoothing * _lead(hidden, table, bias, targets)
    return loss


def softmax_loss(
    hidden: Float[Tensor, "T d"],
    table: Float[Tensor, "n d"],
    bias: Float[Tensor, " n"],
    targets: Int[Tensor, " T"],
    *,
    label_smoothing: float,
    logits_budget_mib: int,
) -> Float[Tensor, ""]:
    """Sum over targets of the cross entropy with a softmax over n items.

    Smoothing mixes the target with the uniform distribution over the n items (Szegedy et al.
    2016) and needs no logits: the mean log-probability is (mean score - logsumexp), and
    logsumexp = loss + target's score. Rows are taken in chunks whose logits fit the budget, or are
    no more than the table has values.
    """
    if len(targets) == 0:
        return _nothing(hidden, table, bias)
    in_bfloat16 = torch.is_autocast_enabled(hidden.device.type)
    if in_bfloat16:
        # Autocast passes linear_cross_entropy by.
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, table, bias = hidden.to(dtype), table.to(dtype), bias.to(dtype)
    n_rows = _rows_per_chunk(table, logits_budget_mib)
    loss = linear_cross_entropy(
        hidden,
        table,
        targets,
        linear_bias=bias,
        # A sum kept in bfloat16 is off by up to .4 %; in float32 it is a third faster.
        reduction="none" if in_bfloat16 else "sum",
        options=LinearCrossEntropyOptions(
            batch_chunk_size=n_rows, chunking_method=None, acc_policy="compact"
        ),
    )
    loss = loss.float().sum()
    if label_smoothing:
        loss = loss + label_smoothing * _lead(hidden, table, bias, targets)
    return loss


def _rows_per_chunk(table: Float[Tensor, "n d"], logits_budget_mib: int) -> int:
    """Rows of hidden states whose logits are computed at once.

    With fewer than d, the passes over the table and its gradient take longer than the products:
    at a million items four to eight times as long as the budget of a cache would have it.
    """
    n_items, dim = table.shape
    return max(dim, logits_budget_mib * 2**20 // (BYTES_PER_LOGIT * n_items))


def _lead(
    hidden: Float[Tensor, "T d"],
    table: Float[Tensor, "n d"],
    bias: Float[Tensor, " n"],
    targets: Int[Tensor, " T"],
) -> Float[Tensor, ""]:
    """Sum over targets of the target's score above the mean score."""
    target_scores = (hidden * table[targets]).sum(1) + bias[targets]  # [T]
    mean_scores = hidden @ table.mean(0) + bias.mean()  # [T]
    return (target_scores - mean_scores).float().sum()


def _nothing(
    hidden: Float[Tensor, "T d"], table: Float[Tensor, "n d"], bias: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """A sum over no targets, with gradients of zero."""
    return (hidden.sum() + table.sum() + bias.sum()).float() * 0.0
