"""What a model is asked: which events it may see, and where it answers."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dayahead.model.rng import StepRandom

Need = Literal["causal", "bidirectional", "permutation"]
"""What a task asks of a body: to look back only, both ways, or along an order of its own."""


@dataclass(frozen=True)
class Question:
    """One forward pass over the first W positions: what to hide and where to answer."""

    lengths: Int[Tensor, " B"]
    """Positions the body may attend to."""
    is_masked: Bool[Tensor, "B W"]
    """Positions whose event is replaced by the mask vector, all of its features."""
    is_asked: Bool[Tensor, "B W"]
    """Positions whose hidden state answers."""
    is_hidden: Bool[Tensor, "B W W"] | None = None
    """[b, i, j]: position i, where it answers, may not see the event at j; None: as the body's
    nature is."""

    def part(self, rows: Int[Tensor, " b"]) -> "Question":
        """That of some rows, as wide as the longest of them."""
        width = max(1, int(self.lengths[rows].max()))
        return Question(
            self.lengths[rows],
            self.is_masked[rows, :width],
            self.is_asked[rows, :width],
            None if self.is_hidden is None else self.is_hidden[rows, :width, :width],
        )


Asked = tuple[Question, Int[Tensor, " T"]]
"""A question, and the catalogue index wanted at each asked position, in their order."""


def everywhere(
    items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
) -> Question:
    """Hide nothing and ask at every event of the session."""
    is_event = session_events(items, lengths, draws)
    return Question(lengths, torch.zeros_like(is_event), is_event)


def session_events(
    items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
) -> Bool[Tensor, "B L"]:
    """What can be masked and asked: the session's own events, its user's past left out."""
    return before(lengths, items) & ~before(draws.n_past, items)


def before(ends: Int[Tensor, " B"], items: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Positions before each row's end."""
    return torch.arange(items.shape[1], device=items.device) < ends[:, None]


def at(places: Int[Tensor, " B"], items: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Each row's place, and no other position."""
    return torch.arange(items.shape[1], device=items.device) == places[:, None]


def some_not_all(
    is_chosen: Bool[Tensor, "B L"], is_event: Bool[Tensor, "B L"], noise: Float[Tensor, "B L"]
) -> Bool[Tensor, "B L"]:
    """Choose the event of least noise where none was chosen; spare that of most where all were."""
    lowest = at(noise.where(is_event, torch.inf).argmin(1), noise) & is_event
    highest = at(noise.where(is_event, -torch.inf).argmax(1), noise)
    is_none = ~is_chosen.any(1, keepdim=True)
    is_all = (is_chosen == is_event).all(1, keepdim=True)
    return (is_chosen | (lowest & is_none)) & ~(highest & is_all)
