"""Training losses: the full softmax, or a target compared with sampled negatives.

A sampled loss is a function of the scores of t targets and K negatives; a negative equal to the
target does not count. Under autocast the products are bfloat16, everything after them float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from traceback import extract_tb

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import elu, log_softmax, logsigmoid, pad, softplus
from torch.utils.checkpoint import checkpoint

from dayahead.config.model import LossConfig
from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.core.plugins import load_plugin
from dayahead.distributed.process import to_device
from dayahead.model.output_layer import OutputLayer, States, Targets, rows_per_chunk, softmax_loss
from dayahead.model.rng import StepRandom

WEIGHT_UNIT = 2**16
"""Sampling weights are integers: their sums are exact, so all processes sample the same items."""
ITEM_STEP = 256
"""A sampled softmax is padded to a multiple of this many items, so that steps share shapes."""
NEVER = -1e30
"""Score of negatives that do not count; -inf gives NaN for a target without any negative."""


@dataclass(frozen=True)
class Negatives:
    """Items all targets of a step are compared with; an item may occur several times."""

    items: Int[Tensor, " K"]
    """Rows of the item table."""
    log_expected: Float[Tensor, " K"]
    """Log of the item's expected number of occurrences among the K."""


class NegativeSampler:
    """Samples negatives by popularity among the targets of the sessions fitted on, on the CPU.

    An item's weight is (1 + how often it is a target) to the power of `popularity_exponent`, so
    that items that are never a target can be sampled too (word2vec's unigram distribution, Mikolov
    et al. 2013, smoothed), with replacement. In-batch negatives are the global batch's targets
    (Hidasi et al. 2016): for each target, the others are a sample of the fit's other targets.
    """

    def __init__(self, config: LossConfig) -> None:
        self.config = config

    def set_counts(self, counts: Int[Tensor, " n"]) -> None:
        """Set how often each item of the catalogue is a target in the fit that starts."""
        self.counts = counts
        exact = (1 + counts).double() ** self.config.popularity_exponent
        self.weights = (exact * WEIGHT_UNIT).long()  # [n]
        self.ends = self.weights.cumsum(0)
        self.n_other_targets = (counts.sum() - 1).clamp(min=1)

    def __call__(self, batch_targets: Int[Tensor, " M"], rng: StepRandom) -> Negatives:
        """Sample for one step, the same on all processes; in-batch negatives may be empty."""
        generator, total = rng.generator("negatives"), int(self.ends[-1])
        # Integer points in integer weights: no rounding can differ between processes.
        points = torch.randint(total, (self.config.negatives,), generator=generator)
        sampled = torch.searchsorted(self.ends, points, right=True)
        items = torch.cat([sampled, batch_targets])
        n_others = max(len(batch_targets) - 1, 0)  # a target is no negative of itself
        popularity = self.counts[items] / self.n_other_targets
        expected = self.config.negatives * self.weights[items] / total + n_others * popularity
        return Negatives(items, expected.log().float())


def items_read(rng: StepRandom, negatives: Negatives, n_items: int) -> Int[Tensor, " R"]:
    """Return the items whose rows a training step with negatives reads, sorted, each once.

    Item 0 is among them: reserved indices read its row too, and so does padding of the loss.

    Args:
        rng: of the step, with the items of the global batch.
        negatives: of the step.
        n_items: in the catalogue.
    """
    items = rng.global_items.flatten() - N_RESERVED
    items = items.where((items >= 0) & (items < n_items), 0)
    every: Tensor = torch.unique(torch.cat([torch.zeros(1).long(), items, negatives.items]))
    return every


def catalogue_loss(
    config: LossConfig,
    hidden: States,
    layer: OutputLayer,
    targets: Targets,
    negatives: Negatives | None,
) -> Float[Tensor, ""]:
    """Sum of the configured loss over targets, float32; without targets 0, with zero gradients.

    Scores are divided by the temperature. `negatives` are None for the full softmax. Targets and
    negatives may be on the CPU, where sorting them does not wait for the GPU.
    """
    cpu_targets, targets = targets, to_device(targets, hidden.device)
    hidden = hidden / config.temperature
    layer = layer.at_temperature(config.temperature)
    if len(targets) == 0 and layer.shard.is_whole:
        # Not a constant: it depends on all parameters, since DDP waits for the gradient of each.
        rows, biases = layer.rows(targets)
        return (hidden.sum() + rows.sum() + biases.sum()).float() * 0.0
    if config.name == "sampled_softmax" and negatives is not None:
        loss = _sampled_softmax(config, hidden, layer, cpu_targets, negatives)
    elif negatives is not None:
        items = to_device(negatives.items, hidden.device)
        loss = _sampled_loss(config, hidden, layer, targets, items)
    else:
        loss = softmax_loss(hidden, layer, targets, config)
    if config.label_smoothing:
        # Mixes the target with the uniform distribution over the items (Szegedy et al. 2016)
        # without logits: the mean log-probability is the mean score - logsumexp, and the
        # logsumexp is the loss + the target's score.
        rows, biases = layer.rows(targets)
        mean_row, mean_bias = (
            layer.shard.mean(own, layer.n_items) for own in (layer.table, layer.bias)
        )
        target_scores = (hidden * rows).sum(1).float() + biases
        margins = target_scores - (hidden @ mean_row + mean_bias)
        loss = loss + config.label_smoothing * margins.float().sum()
    return loss


def weighted_loss(
    config: LossConfig,
    hidden: States,
    layer: OutputLayer,
    targets: Targets,
    negatives: Negatives | None,
    weights: Float[Tensor, " T"],
    values: Sequence[float],
) -> Float[Tensor, ""]:
    """Return `catalogue_loss` with each target's loss times its weight, on the CPU.

    `values` are all weights that any target of any process has: as many sums are computed.
    """
    total = hidden.new_zeros((), dtype=torch.float32)
    for value in values:
        own = (weights == value).nonzero()[:, 0]
        part = hidden.index_select(0, to_device(own, hidden.device))
        chosen = targets[own.to(targets.device)]
        total = total + value * catalogue_loss(config, part, layer, chosen, negatives)
    return total


def _sampled_softmax(
    config: LossConfig, hidden: States, layer: OutputLayer, targets: Targets, negatives: Negatives
) -> Float[Tensor, ""]:
    """Sum of the cross entropy with the softmax's sum estimated from the negatives.

    Bengio and Senecal 2003: exp(score) of a negative over its expected number of occurrences
    estimates the sum over all items but the target without bias; the target's own term is exact.
    `logq` weakens this correction of the negatives (Hidasi and Czapp 2023). GRU4Rec's authors
    subtract logq * log(count) from the scores of the batch's items, the target's own included, and
    `popularity_exponent` times that from those of samples: the rarer a target, the less its score
    has to rise.

    Ours is a softmax over the items that occur, each once, with the log of the sum of its weights
    added to its score. They are padded with item 0, of weight 0, to a multiple of ITEM_STEP.
    """
    items, columns = torch.unique(torch.cat([targets, negatives.items]), return_inverse=True)
    own, sampled = columns.tensor_split([len(targets)])
    items = pad(items, (0, -len(items) % ITEM_STEP))
    weights = torch.zeros(len(items), dtype=torch.float64, device=items.device)  # 0 for padding
    weights.index_add_(0, sampled, (-config.logq * negatives.log_expected.double()).exp())
    items, own, corrections = (
        to_device(each, hidden.device) for each in (items, own, weights.log().float())
    )
    of_items = OutputLayer(*layer.rows(items), len(items))
    return softmax_loss(hidden, of_items, own, config, corrections)


def _sampled_loss(
    config: LossConfig, hidden: States, layer: OutputLayer, targets: Targets, items: Targets
) -> Float[Tensor, ""]:
    """Sum over targets of a loss against negative items, in chunks whose scores fit the budget.

    The backward pass computes a chunk's scores again, so that only one chunk's are in memory.
    """
    rows, biases = layer.rows(torch.cat([targets, items]))  # [T + K, d], [T + K]
    target_rows, negative_rows = rows.tensor_split([len(targets)])
    own = SAMPLED_LOSSES.get(config.name)
    loss_of_scores = _packaged_loss(config.name) if own is None else own
    target_biases, negative_biases = biases.tensor_split([len(targets)])

    def loss_of(
        hidden: Tensor, targets: Tensor, target_rows: Tensor, target_biases: Tensor
    ) -> Tensor:
        scores = Scores(
            (hidden * target_rows).sum(1) + target_biases,
            hidden @ negative_rows.T + negative_biases,
            targets[:, None] != items,
            layer.n_items,
        )
        return loss_of_scores(scores, config).sum()

    n_rows = rows_per_chunk(len(items), config.logits_mib)
    inputs = (hidden, targets, target_rows, target_biases)
    losses = [
        # The losses draw no random numbers, so there is no generator state to restore.
        checkpoint(loss_of, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(*(torch.split(each, n_rows) for each in inputs), strict=True)
    ]
    return torch.stack(losses).sum()


def _packaged_loss(name: str) -> "ScoresLoss":
    """Return the loss of another package, which names itself in errors, and checks its values."""
    function = load_plugin("loss", name)

    def checked(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
        try:
            losses: Tensor = function(scores, config)
        except Exception as error:
            # checkpoint ends the recomputation of a chunk by an exception of its own.
            if type(error).__module__ == checkpoint.__module__:
                raise
            raise ConfigError(
                f"params.yaml: loss.name: {name} fails at {_place(error)}: "
                f"{type(error).__name__}: {' '.join(str(error).split())}; correct it there"
            ) from error
        _check_losses(name, losses, scores.targets)
        return losses

    return checked


def _place(error: Exception) -> str:
    """Return file and line where a package's function, or what it calls in its file, fails."""
    frames = extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "its call with (scores, config)"


def _check_losses(name: str, losses: object, targets: Tensor) -> None:
    """Check what a loss of another package returns: a mean would count as a single target's."""
    if not isinstance(losses, Tensor) or losses.shape != targets.shape:
        found = f"shape {list(losses.shape)}" if isinstance(losses, Tensor) else repr(losses)
        raise ConfigError(
            f"params.yaml: loss.name: {name} must return the loss of each target, a tensor of "
            f"shape [{len(targets)}] (found {found})"
        )
    if targets.requires_grad and not losses.requires_grad:
        raise ConfigError(
            f"params.yaml: loss.name: {name} must return losses with gradients (found a tensor "
            f"that does not depend on the scores); compute it from scores.targets and "
            f"scores.negatives without detach, item, numpy or torch.no_grad"
        )


@dataclass(frozen=True)
class Scores:
    """The input of a sampled loss."""

    targets: Float[Tensor, " t"]
    """Score of each target."""
    negatives: Float[Tensor, "t K"]
    """Scores of the negatives, the same K items for all targets."""
    is_other: Bool[Tensor, "t K"]
    """Where the negative is another item than the target."""
    n_items: int
    """Number of items in the whole catalogue."""

    @property
    def n_others(self) -> Float[Tensor, " t"]:
        """Negatives of each target."""
        return self.is_other.sum(1, dtype=torch.float32)  # int64 would take twice the memory

    @property
    def margin(self) -> Float[Tensor, "t K"]:
        """The target's score minus each negative's."""
        return self.targets[:, None] - self.negatives

    @property
    def log_weights(self) -> Float[Tensor, "t K"]:
        """Log-softmax over a target's negatives, which favours the hardest ones."""
        return log_softmax(self.negatives.masked_fill(~self.is_other, NEVER), dim=1)

    def mean(self, values: Float[Tensor, "t K"]) -> Float[Tensor, " t"]:
        """Mean over a target's negatives; 0 where it has none."""
        return (values * self.is_other).sum(1) / self.n_others.clamp(min=1)

    def weighted(self, values: Float[Tensor, "t K"]) -> Float[Tensor, " t"]:
        """Mean weighted by the softmax; 0 where there is no negative."""
        return (values * self.log_weights.exp() * self.is_other).sum(1)


def gbce(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Binary cross entropy with the target's probability to the power of beta.

    Petrov and Macdonald 2023 (gSASRec): with sampling rate a = negatives / (items - 1) and
    calibration t, beta = a (t (1 - 1/a) + 1/a) = 1 - t (1 - a); a is above 1 where negatives
    repeat. The mean over the target and its negatives, as there.
    """
    rate = scores.n_others / max(scores.n_items - 1, 1)
    beta = 1 - config.gbce_calibration * (1 - rate)
    negative_terms = (softplus(scores.negatives) * scores.is_other).sum(1)
    return (negative_terms - beta * logsigmoid(scores.targets)) / (scores.n_others + 1)


def bpr(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Rendle et al. 2009: -log sigmoid of the margin, averaged over the negatives."""
    return scores.mean(softplus(-scores.margin))


def bpr_max(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi and Karatzoglou 2018: -log of the sigmoids' mean, weighted by the softmax.

    The regularisation adds the negatives' squared scores, weighted likewise. The authors' program
    computes all of it from the ELU of the scores.
    """
    if config.elu:
        targets, negatives = (elu(each, config.elu) for each in (scores.targets, scores.negatives))
        scores = replace(scores, targets=targets, negatives=negatives)
    # No mask: where a negative does not count, its log-weight NEVER outweighs logsigmoid(margin).
    likelihood = (scores.log_weights + logsigmoid(scores.margin)).logsumexp(1)
    loss = torch.where(scores.n_others > 0, -likelihood, 0.0)
    if config.bpr_max_regularisation:
        loss = loss + config.bpr_max_regularisation * scores.weighted(scores.negatives**2)
    return loss


def top1(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi et al. 2016: the relative rank of the target, and negative scores pulled to 0."""
    return scores.mean(_top1_terms(scores))


def top1_max(scores: Scores, config: LossConfig) -> Float[Tensor, " t"]:
    """Hidasi and Karatzoglou 2018: the same, weighted by the softmax."""
    return scores.weighted(_top1_terms(scores))


def _top1_terms(scores: Scores) -> Float[Tensor, "t K"]:
    return torch.sigmoid(-scores.margin) + torch.sigmoid(scores.negatives**2)


ScoresLoss = Callable[[Scores, LossConfig], Float[Tensor, " t"]]
SAMPLED_LOSSES: dict[str, ScoresLoss] = {
    loss.__name__: loss for loss in (gbce, bpr, bpr_max, top1, top1_max)
}
