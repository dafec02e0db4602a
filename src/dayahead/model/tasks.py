"""Training tasks: which positions are masked and predicted, and what each may attend to.

The task decides the attention: `clm` sees the past, `mlm` both sides of a masked item, `plm` what
precedes an item in a random order. `rtd` masks as `mlm` does; its discriminator is in rtd.py.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dayahead.config.model import TaskConfig
from dayahead.model.rng import StepRandom

Attention = Literal["causal", "bidirectional", "permutation"]
"""Attention a task needs: to the past, to both sides, or along an order given with the batch."""
Items = Int[Tensor, "B L"]
Counts = Int[Tensor, " B"]
"""Events of each row."""
Labels = Int[Tensor, " T"]
"""Vocabulary index of each predicted position's item, in row-major order."""
Mask = Bool[Tensor, "B L"]
Noise = Float[Tensor, "B L"]
"""Uniform in [0, 1)."""


@dataclass(frozen=True)
class PredictionPositions:
    """Positions that a forward pass over the first W positions masks, and those it predicts."""

    lengths: Int[Tensor, " B"]
    """Positions that can be attended to."""
    is_masked: Bool[Tensor, "B W"]
    """Positions whose event, with all its features, is replaced by the mask vector."""
    is_predicted: Bool[Tensor, "B W"]
    """Positions whose hidden state predicts an item."""
    is_hidden: Bool[Tensor, "B W W"] | None = None
    """[b, i, j]: the prediction at i must not see the event at j. None: the backbone's own
    attention decides."""

    def part(self, rows: Int[Tensor, " b"]) -> "PredictionPositions":
        """Some rows, cut to the longest of them."""
        width = max(1, int(self.lengths[rows].max()))
        return PredictionPositions(
            self.lengths[rows],
            self.is_masked[rows, :width],
            self.is_predicted[rows, :width],
            None if self.is_hidden is None else self.is_hidden[rows, :width, :width],
        )


@dataclass(frozen=True)
class CausalTask:
    """`clm`: predict the following item at every position (Radford et al. 2018)."""

    attention: ClassVar[Attention] = "causal"
    first_target: ClassVar[int] = 1

    def training_positions(
        self, items: Items, lengths: Counts, rng: StepRandom
    ) -> tuple[PredictionPositions, Labels]:
        """Every event of the session but the last, which need not be read."""
        n_read = (lengths - 1).clamp(min=0)
        is_predicted = rng.targets_among(session_events(items[:, 1:], n_read, rng), first=1)
        positions = PredictionPositions(n_read, torch.zeros_like(is_predicted), is_predicted)
        return positions, self.at_targets(items, positions)

    def at_targets(self, values: Tensor, positions: PredictionPositions) -> Tensor:
        """Return the values, given by event, of the events that are predicted."""
        return values[:, 1:][positions.is_predicted]

    def next_item_positions(self, items: Items, n_known: Counts) -> PredictionPositions:
        """The last known event."""
        is_predicted = _is_at(n_known - 1, items[:, : int(n_known.max())])
        return PredictionPositions(n_known, torch.zeros_like(is_predicted), is_predicted)


@dataclass(frozen=True)
class MaskedTask:
    """`mlm`: predict randomly masked items, at least one and never all of a session.

    Devlin et al. 2018 without their random and kept replacements, as in Transformers4Rec.
    """

    probability: float
    attention: ClassVar[Attention] = "bidirectional"
    first_target: ClassVar[int] = 0

    def training_positions(
        self, items: Items, lengths: Counts, rng: StepRandom
    ) -> tuple[PredictionPositions, Labels]:
        """Events whose uniform random number is below the probability."""
        noise = rng.uniform("mask")
        is_event = session_events(items, lengths, rng)
        could_be = rng.targets_among(is_event)
        is_masked = _some_not_all((noise < self.probability) & could_be, could_be, is_event, noise)
        return PredictionPositions(lengths, is_masked, is_masked), items[is_masked]

    def at_targets(self, values: Tensor, positions: PredictionPositions) -> Tensor:
        """Return the values, given by event, of the events that are predicted."""
        return values[positions.is_predicted]

    def next_item_positions(self, items: Items, n_known: Counts) -> PredictionPositions:
        """A mask after the known events."""
        is_masked = _is_at(n_known, items[:, : int(n_known.max()) + 1])
        return PredictionPositions(n_known + 1, is_masked, is_masked)


@dataclass(frozen=True)
class PermutationTask:
    """`plm`: permutation language modelling (Yang et al. 2019), spans as in Transformers4Rec.

    A session is cut into stretches; in each, a span of up to `max_span` neighbours is predicted
    and the rest is context, so that a share `probability` is predicted: at least one item, never
    all. The predicted items have a random order; each sees the context and the predicted items
    before it in that order.
    """

    probability: float
    max_span: int
    attention: ClassVar[Attention] = "permutation"
    first_target: ClassVar[int] = 0

    def training_positions(
        self, items: Items, lengths: Counts, rng: StepRandom
    ) -> tuple[PredictionPositions, Labels]:
        """The positions in spans; the context comes first in the order."""
        is_event = session_events(items, lengths, rng)
        noise = rng.uniform("order")
        is_in_span = spans(
            rng.uniform("span_length"), rng.uniform("span_start"), self.probability, self.max_span
        )
        could_be = rng.targets_among(is_event)
        is_predicted = _some_not_all(is_in_span & could_be, could_be, is_event, noise)
        # Below all noise: the context precedes every predicted item.
        order = noise.where(is_predicted, -1.0)
        is_hidden = (order[:, :, None] <= order[:, None, :]) & is_predicted[:, None, :]
        positions = PredictionPositions(
            lengths, torch.zeros_like(is_predicted), is_predicted, is_hidden
        )
        return positions, items[is_predicted]

    def at_targets(self, values: Tensor, positions: PredictionPositions) -> Tensor:
        """Return the values, given by event, of the events that are predicted."""
        return values[positions.is_predicted]

    def next_item_positions(self, items: Items, n_known: Counts) -> PredictionPositions:
        """The position after the known events, which are all context."""
        is_predicted = _is_at(n_known, items[:, : int(n_known.max()) + 1])
        is_hidden = is_predicted[:, None, :].expand(-1, is_predicted.shape[1], -1)
        return PredictionPositions(n_known + 1, is_predicted, is_predicted, is_hidden)


Task = CausalTask | MaskedTask | PermutationTask
"""`training_positions` of sessions whose every item is known, with their labels, which are the
items `at_targets`;
`next_item_positions` after the first `n_known` items, where later columns are never read;
`first_target`, how many items at the start of a session are never predicted."""


def build_task(config: TaskConfig) -> Task:
    """Build the configured task; `rtd` masks as `mlm` does."""
    if config.name == "clm":
        return CausalTask()
    if config.name == "plm":
        return PermutationTask(config.plm_probability, config.plm_max_span)
    return MaskedTask(config.mlm_probability)


def session_events(items: Items, lengths: Counts, rng: StepRandom) -> Mask:
    """Events that can be masked and predicted: the session's own, not the user's past."""
    return is_before(lengths, items) & ~is_before(rng.n_past, items)


def spans(length_noise: Noise, start_noise: Noise, probability: float, max_span: int) -> Mask:
    """Which positions lie in a span, from two uniform random numbers for each stretch of a row.

    A span of s items (uniform in 1 to max_span) lies anywhere in a stretch of floor(s /
    probability) items. Stretches follow each other, so a row of L positions has at most L.
    """
    span = (length_noise * max_span).long() + 1  # [B, S], a number for each stretch
    stretch = (span.double() / probability).long().clamp(min=span)
    ends = stretch.cumsum(1)
    starts = ends - stretch + (start_noise * (stretch - span + 1)).long()
    # searchsorted warns of input that is not contiguous.
    steps = torch.arange(span.shape[1], device=span.device).expand(len(span), -1).contiguous()
    of = torch.searchsorted(ends, steps, right=True)  # [B, L], the stretch of each position
    start = starts.gather(1, of)
    return (start <= steps) & (steps < start + span.gather(1, of))


def is_before(ends: Counts, items: Items) -> Mask:
    """Positions before each row's end."""
    return torch.arange(items.shape[1], device=items.device) < ends[:, None]


def _is_at(index: Counts, items: Items) -> Mask:
    return torch.arange(items.shape[1], device=items.device) == index[:, None]


def _some_not_all(is_chosen: Mask, could_be: Mask, is_event: Mask, noise: Noise) -> Mask:
    """Add the event of lowest noise that could be, if none is chosen; drop one if all events are.

    Dropped is that of highest noise.
    """
    lowest = _is_at(noise.where(could_be, torch.inf).argmin(1), noise) & could_be
    highest = _is_at(noise.where(is_event, -torch.inf).argmax(1), noise)
    is_none = ~is_chosen.any(1, keepdim=True)
    is_all = (is_chosen == is_event).all(1, keepdim=True)
    return (is_chosen | (lowest & is_none)) & ~(highest & is_all)
