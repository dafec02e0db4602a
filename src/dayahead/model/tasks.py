"""What a model is asked in training, and where the answer to a session stands.

A task decides causality: `clm` sees the past, `mlm` both sides of a masked item, `plm` what comes
before an item in an order drawn by chance. `rtd` asks as `mlm` does; `replaced` has its other half.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from dayahead.config.params import TaskConfig
from dayahead.model.plm import PermutedTask
from dayahead.model.prediction_positions import (
    Asked,
    Need,
    Question,
    at,
    session_events,
    some_not_all,
)
from dayahead.model.rng import StepRandom


@runtime_checkable
class Task(Protocol):
    """Training questions from whole sessions, and the question of the next item."""

    needs: ClassVar[Need]

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
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
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
    ) -> Asked:
        """Ask at every event of the session but the last, which need not be read."""
        n_read = (lengths - 1).clamp(min=0)
        is_asked = session_events(items[:, 1:], n_read, draws)
        question = Question(n_read, torch.zeros_like(is_asked), is_asked)
        return question, items[:, 1:][is_asked]

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Ask at the last known event."""
        is_asked = at(n_known - 1, items[:, : int(n_known.max())])
        return Question(n_known, torch.zeros_like(is_asked), is_asked)


@dataclass(frozen=True)
class MaskedTask:
    """`mlm`: items hidden at random, at least one and never all of a session.

    Devlin et al. 2018 without their random and kept replacements, as in Transformers4Rec.
    """

    probability: float
    needs: ClassVar[Need] = "bidirectional"

    def training_question(
        self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"], draws: StepRandom
    ) -> Asked:
        """Mask where a uniform draw falls below the probability."""
        noise = draws.uniform("mask")
        is_event = session_events(items, lengths, draws)
        is_masked = some_not_all((noise < self.probability) & is_event, is_event, noise)
        return Question(lengths, is_masked, is_masked), items[is_masked]

    def next_question(self, items: Int[Tensor, "B L"], n_known: Int[Tensor, " B"]) -> Question:
        """Put the mask where the next item will stand and ask there."""
        is_masked = at(n_known, items[:, : int(n_known.max()) + 1])
        return Question(n_known + 1, is_masked, is_masked)


def build_task(config: TaskConfig) -> Task:
    """Make the task of the settings."""
    if config.name == "clm":
        return CausalTask()
    if config.name == "plm":
        return PermutedTask(config.plm_probability, config.plm_max_span)
    return MaskedTask(config.mlm_probability)
