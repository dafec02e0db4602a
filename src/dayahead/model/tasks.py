"""What a model is asked in training, and where the answer to a session stands.

A task decides causality: `clm` sees the past, `mlm` both sides of a masked item.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dayahead.config.params import TaskConfig
from dayahead.model.draws import Draws

Need = Literal["causal", "bidirectional"]
"""What a body must be able to do: look back only, or both ways."""


@dataclass(frozen=True)
class Question:
    """One forward pass over the first W positions: what to hide and where to answer."""

    lengths: Int[Tensor, " B"]
    """Positions the body may attend to."""
    is_masked: Bool[Tensor, "B W"]
    """Positions whose event is replaced by the mask vector, all of its features."""
    is_asked: Bool[Tensor, "B W"]
    """Positions whose hidden state answers."""

    def part(self, rows: Int[Tensor, " b"]) -> "Question":
        """That of some rows, as wide as the longest of them."""
        width = max(1, int(self.lengths[rows].max()))
        return Question(
            self.lengths[rows], self.is_masked[rows, :width], self.is_asked[rows, :width]
        )


Asked = tuple[Question, Int[Tensor, " T"]]
"""A question, and the catalogue index wanted at each asked position, in their order."""


@runtime_checkable
class Task(Protocol):
    """Training questions from whole sessions, and the question of the next item."""

    needs: ClassVar[Need]

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: Draws
    ) -> Asked:
        """Ask about sessions whose every item is known."""
        ...

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Ask for the item after the first `n_known` ones; later columns are never read."""
        ...


@dataclass(frozen=True)
class CausalTask:
    """`clm`: at every position, the item that follows (Radford et al. 2018)."""

    needs: ClassVar[Need] = "causal"

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: Draws
    ) -> Asked:
        """Ask at every event but the last, which need not be read."""
        n_read = (lengths - 1).clamp(min=0)
        is_asked = _before(n_read, items[:, 1:])
        question = Question(n_read, torch.zeros_like(is_asked), is_asked)
        return question, items[:, 1:][is_asked]

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Ask at the last known event."""
        is_asked = _at(n_known - 1, items[:, : int(n_known.max())])
        return Question(n_known, torch.zeros_like(is_asked), is_asked)


@dataclass(frozen=True)
class MaskedTask:
    """`mlm`: items hidden at random, at least one and never all of a session.

    Devlin et al. 2018 without their random and kept replacements, as in Transformers4Rec.
    """

    probability: float
    needs: ClassVar[Need] = "bidirectional"

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: Draws
    ) -> Asked:
        """Mask where a uniform draw falls below the probability."""
        noise = draws.uniform("mask")
        is_event = _before(lengths, items)
        is_masked = (noise < self.probability) & is_event
        lowest = _at(noise.where(is_event, torch.inf).argmin(1), items) & is_event
        highest = _at(noise.where(is_event, -torch.inf).argmax(1), items)
        is_none = ~is_masked.any(1, keepdim=True)
        is_all = (is_masked == is_event).all(1, keepdim=True)
        is_masked = (is_masked | (lowest & is_none)) & ~(highest & is_all)
        return Question(lengths, is_masked, is_masked), items[is_masked]

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Put the mask where the next item will stand and ask there."""
        is_masked = _at(n_known, items[:, : int(n_known.max()) + 1])
        return Question(n_known + 1, is_masked, is_masked)


def build_task(config: TaskConfig) -> Task:
    """Make the task of the settings."""
    return CausalTask() if config.name == "clm" else MaskedTask(config.mlm_probability)


def _before(ends: Int[Tensor, " B"], items: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    return torch.arange(items.shape[1], device=items.device) < ends[:, None]


def _at(places: Int[Tensor, " B"], items: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    return torch.arange(items.shape[1], device=items.device) == places[:, None]
