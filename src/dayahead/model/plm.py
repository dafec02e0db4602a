"""`plm`: items predicted one after another in an order drawn by chance, by XLNet's two streams."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dayahead.model.backbones import Body
from dayahead.model.prediction_positions import (
    Asked,
    Need,
    Question,
    at,
    before,
    session_events,
    some_not_all,
)
from dayahead.model.rng import StepRandom


@dataclass(frozen=True)
class PermutedTask:
    """Permutation language modelling (Yang et al. 2019), with spans as in Transformers4Rec.

    A session is cut into stretches; in each, a span of up to `max_span` neighbours is predicted
    and the rest is given, so that a share `probability` is predicted. At least one item is, and
    never all. The predicted ones follow one another in an order drawn by chance: each sees the
    given items and the predicted ones before it.
    """

    probability: float
    max_span: int
    needs: ClassVar[Need] = "permutation"

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
    ) -> Asked:
        """Ask at the predicted positions; given items stand first in the order."""
        is_event = session_events(items, lengths, draws)
        noise = draws.uniform("order")
        is_in_span = spans(
            draws.uniform("span_length"),
            draws.uniform("span_start"),
            self.probability,
            self.max_span,
        )
        is_predicted = some_not_all(is_in_span & is_event, is_event, noise)
        order = noise.where(is_predicted, -1.0)
        is_hidden = (order[:, :, None] <= order[:, None, :]) & is_predicted[:, None, :]
        nowhere = torch.zeros_like(is_predicted)
        return Question(lengths, nowhere, is_predicted, is_hidden), items[is_predicted]

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Ask where the next item will stand, all known ones given."""
        is_asked = at(n_known, items[:, : int(n_known.max()) + 1])
        is_hidden = is_asked[:, None, :].expand(-1, is_asked.shape[1], -1)
        return Question(n_known + 1, is_asked, is_asked, is_hidden)


def spans(
    length_noise: Float[Tensor, "B L"],
    start_noise: Float[Tensor, "B L"],
    probability: float,
    max_span: int,
) -> Bool[Tensor, "B L"]:
    """Which positions lie in a span, from two uniform numbers for each stretch of a row.

    A span of s items (1 to max_span alike) lies anywhere in a stretch of floor(s / probability);
    stretches follow each other, so a row of L positions has at most L of them.
    """
    span = (length_noise * max_span).long() + 1  # [B, S], a number for each stretch
    stretch = (span.double() / probability).long().clamp(min=span)
    ends = stretch.cumsum(1)
    starts = ends - stretch + (start_noise * (stretch - span + 1)).long()
    steps = torch.arange(span.shape[1], device=span.device).expand(len(span), -1).contiguous()
    of = torch.searchsorted(ends, steps, right=True)  # [B, L], the stretch of each position
    start = starts.gather(1, of)
    return (start <= steps) & (steps < start + span.gather(1, of))


def asked_states(
    body: nn.Module, inputs: Float[Tensor, "B W D"], question: Question
) -> Float[Tensor, "T D"]:
    """What a body writes at each asked position, row by row.

    Where something is hidden, the stream of queries is asked, at the asked positions alone.
    """
    if question.is_hidden is None:
        states: Tensor = body(inputs, question.lengths)[question.is_asked]
        return states
    n_asked = question.is_asked.sum(1)
    first = question.is_asked.int().argsort(stable=True, dim=1, descending=True)
    places = first[:, : max(1, int(n_asked.max()))]  # [B, M], the asked ones first
    queried = cast("Body", body).queried(inputs, question.lengths, question.is_hidden, places)
    return queried[before(n_asked, places)]
