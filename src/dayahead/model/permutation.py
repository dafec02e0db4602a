"""`plm`: items predicted one after another in an order drawn by chance, by XLNet's two streams."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot
from transformers import XLNetModel

from dayahead.model.draws import Draws
from dayahead.model.questions import Asked, Need, Question, at, before, session_events, some_not_all


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
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: Draws
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


def learn_mask(body: nn.Module) -> None:
    """Let XLNet's own mask vector learn, which only its second stream reads."""
    cast("XLNetModel", body.transformer).mask_emb.requires_grad_(True)


def asked_states(
    body: nn.Module, inputs: Float[Tensor, "B W D"], question: Question
) -> Float[Tensor, "T D"]:
    """What the body writes at each asked position, row by row."""
    if question.is_hidden is None:
        states: Tensor = body(inputs, question.lengths)[question.is_asked]
        return states
    xlnet = cast("XLNetModel", body.transformer)
    return _query_stream(xlnet, inputs, question, question.is_hidden)


def _query_stream(
    xlnet: XLNetModel,
    inputs: Float[Tensor, "B W D"],
    question: Question,
    is_hidden: Bool[Tensor, "B W W"],
) -> Float[Tensor, "T D"]:
    """What XLNet's second stream writes at each asked position, row by row.

    It knows the place of the event it predicts and what is not hidden from it, never the event:
    in its stead stands XLNet's own mask vector. The first stream reads all events.
    """
    is_asked = question.is_asked
    n_asked = is_asked.sum(1)
    n_slots = max(1, int(n_asked.max()))
    slots = is_asked.int().argsort(stable=True, dim=1, descending=True)[:, :n_slots]  # [B, M]
    is_slot = before(n_asked, slots)
    mapping = one_hot(slots, inputs.shape[1]) * is_slot[..., None]  # [B, M, W]
    # An empty row attends to its first position, for a softmax over nothing is not a number.
    is_event = before(question.lengths.clamp(min=1), is_asked)
    output: Tensor = xlnet(
        inputs_embeds=inputs,
        attention_mask=is_event.to(inputs.dtype),
        perm_mask=is_hidden.to(inputs.dtype),
        target_mapping=mapping.to(inputs.dtype),
    ).last_hidden_state  # [B, M, D]
    return output[is_slot]
