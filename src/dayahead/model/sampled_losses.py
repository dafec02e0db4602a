"""Losses that compare a target with negatives instead of the whole catalogue.

Each takes the scores of t targets and K negatives; a negative that is the target itself does not
count. Under autocast the products are bfloat16, all that follows is float32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid, softplus
from torch.utils.checkpoint import checkpoint

from dayahead.config.params import LossConfig
from dayahead.model.negatives import Negatives
from dayahead.model.output import OutputLayer

BYTES_PER_SCORE = 4
NEVER = -1e30
"""Score of what does not count; with infinity a target without any negative would give NaN."""


@dataclass(frozen=True)
class Scores:
    """What a loss is a function of."""

    targets: Float[Tensor, " t"]
    negatives: Float[Tensor, "t K"]
    is_other: Bool[Tensor, "t K"]
    """Where the negative is another item than the target."""
    log_expected: Float[Tensor, " K"]
    """Logarithm of how often a negative is expected among the K."""
    n_items: int
    """Of the catalogue held."""

    @property
    def n_others(self) -> Float[Tensor, " t"]:
        """Negatives of each target."""
        return self.is_other.sum(1, dtype=torch.float32)  # int64 would take twice the budget

    @property
    def lead(self) -> Float[Tensor, "t K"]:
        """The target's score above each negative's."""
        return self.targets[:, None] - self.negatives

    @property
    def log_weights(self) -> Float[Tensor, "t K"]:
        """Softmax over a target's negatives, which looks at the hardest ones."""
        return log_softmax(self.negatives.masked_fill(~self.is_other, NEVER), dim=1)

    def mean(self, values: Float[Tensor, "t K"]) -> Float[Tensor, " t"]:
        """Mean over a target's negatives; 0 where it has none."""
        return (values * self.is_other).sum(1) / self.n_others.clamp(min=1)

    def weighted(self, values: Float[Tensor, "t K"]) -> Float[Tensor, " t"]:
        """Mean weighted by the softmax; 0 where there is no negative."""
        return (values * self.log_weights.exp() * self.is_other).sum(1)


def sampled_softmax(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Cross entropy with the softmax's sum over the catalogue estimated from the negatives.

    Bengio and Senecal 2003: exp(score) of a negative over how often it is expected estimates the
    sum over all items but the target, without bias; the target's own term is exact.
    """
    corrected = (scores.negatives - scores.log_expected).masked_fill(~scores.is_other, NEVER)
    return softplus(corrected.logsumexp(1) - scores.targets)


def gbce(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Binary cross entropy with the target's probability to the power of beta.

    Petrov and Macdonald 2023 (gSASRec): with sampling rate a = negatives / (items - 1) and
    calibration t, beta = a (t (1 - 1/a) + 1/a) = 1 - t (1 - a); a is above 1 where negatives
    repeat. The mean over the target and its negatives, as there.
    """
    rate = scores.n_others / max(scores.n_items - 1, 1)
    beta = 1 - config.gbce_calibration * (1 - rate)
    against = (softplus(scores.negatives) * scores.is_other).sum(1)
    return (against - beta * logsigmoid(scores.targets)) / (scores.n_others + 1)


def bpr(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Rendle et al. 2009: -log sigmoid of the lead, its mean over the negatives."""
    return scores.mean(softplus(-scores.lead))


def bpr_max(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi and Karatzoglou 2018: -log of the sigmoids' mean, weighted by the softmax.

    The negatives' squared scores, weighted likewise, are added times the regularisation.
    """
    # logsigmoid(lead) counts nothing where the weight is exp(NEVER).
    likelihood = (scores.log_weights + logsigmoid(scores.lead)).logsumexp(1)
    loss = torch.where(scores.n_others > 0, -likelihood, 0.0)
    if config.bpr_max_regularisation:
        loss = loss + config.bpr_max_regularisation * scores.weighted(scores.negatives**2)
    return loss


def top1(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi et al. 2016: the share of negatives ranked above, and a pull of theirs to 0."""
    return scores.mean(_rank_and_pull(scores))


def top1_max(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi and Karatzoglou 2018: the same, weighted by the softmax."""
    return scores.weighted(_rank_and_pull(scores))


def _rank_and_pull(scores: Scores) -> Float[Tensor, "t K"]:
    return torch.sigmoid(-scores.lead) + torch.sigmoid(scores.negatives**2)


LOSSES: dict[str, Callable[[Scores, LossConfig], Float[Tensor, " t"]]] = {
    "sampled_softmax": sampled_softmax,
    "gbce": gbce,
    "bpr": bpr,
    "bpr_max": bpr_max,
    "top1": top1,
    "top1_max": top1_max,
}


def sampled_loss(
    config: LossConfig,
    hidden: Float[Tensor, "T d"],
    catalogue: OutputLayer,
    targets: Int[Tensor, " T"],
    negatives: Negatives,
) -> Float[Tensor, ""]:
    """Sum of a loss over targets, in chunks whose scores fit the budget.

    A chunk's scores are computed again for its gradient, so that none but one chunk's are held.
    """
    rows, biases = catalogue.rows(torch.cat([targets, negatives.items]))  # [T + K, d], [T + K]
    n_items = catalogue.n_items
    target_rows, negative_rows = rows.tensor_split([len(targets)])
    target_biases, negative_biases = biases.tensor_split([len(targets)])

    def loss_of(
        hidden: Tensor, targets: Tensor, target_rows: Tensor, target_biases: Tensor
    ) -> Tensor:
        found = Scores(
            (hidden * target_rows).sum(1) + target_biases,
            hidden @ negative_rows.T + negative_biases,
            targets[:, None] != negatives.items,
            negatives.log_expected,
            n_items,
        )
        return LOSSES[config.name](found, config).sum()

    n_rows = max(1, config.logits_budget_mib * 2**20 // (BYTES_PER_SCORE * max(1, len(negatives))))
    asked = (hidden, targets, target_rows, target_biases)
    chunks = zip(*(torch.split(parts, n_rows) for parts in asked), strict=True)
    losses = [
        checkpoint(loss_of, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in chunks
    ]
    return torch.stack(losses).sum()
