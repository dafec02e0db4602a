"""A session's own items: candidates for every model, and reminders for the baselines."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dayahead.config.model import Remind
from dayahead.core.columns import IS_PAST, ITEM_ID, N_RESERVED
from dayahead.metrics.scores import DenseScores, Scores
from dayahead.model.output_layer import Columns, Scorer

FIRST_STEP = {"keep": 0, "drop_consecutive": 1}
"""Events from a session's end to the first item that may come again, by the rule for repeats."""
FEW, MANY = 0.01, 0.12
"""Shares of sessions that end with an item they already had: `auto` ranks a session's items last
below FEW and first from MANY on. Two shops have 26 % and 14 %, the embedded log about 10 %, a news
portal 0."""


@dataclass(frozen=True)
class OwnItems:
    """The different items of session prefixes, the latest first; N of them at most."""

    items: Int[Tensor, "B N"]
    """Vocabulary indices, also of items that the model has no row of; 0 where there are fewer."""
    steps: Int[Tensor, "B N"]
    """Events after an item's last one: 0 for the session's last item."""
    positions: Int[Tensor, "B N"]
    """Position of an item's last event in the prefix, from 1."""
    columns: Int[Tensor, "B N"]
    """Column of the item among the candidates; -1 where it is none of them."""

    @classmethod
    def of(
        cls, columns: Columns, n_known: Int[Tensor, " B"], candidates: Int[Tensor, " C"]
    ) -> "OwnItems":
        """Find them in padded sessions [B, L], of which `n_known` events each are known.

        Items of the user's past, and unknown items without an index, do not count. `candidates`
        are ascending, and on the device that finds them.
        """
        device = candidates.device
        items, n_known = columns[ITEM_ID].to(device), n_known.to(device)
        steps = torch.arange(items.shape[1], device=items.device)
        at = n_known[:, None] - 1 - steps  # [B, L], backwards
        latest = items.gather(1, at.clamp(min=0)).long()
        is_own = (at >= 0) & (latest >= N_RESERVED)
        if IS_PAST in columns:
            is_own &= columns[IS_PAST].to(device).gather(1, at.clamp(min=0)) != 1
        is_same = (latest[:, :, None] == latest[:, None, :]).tril(-1) & is_own[:, None, :]
        is_own &= ~is_same.any(2)  # no later event has the item
        return cls(
            latest * is_own,
            steps.expand_as(at),
            at + 1,
            torch.where(is_own, columns_of(latest, candidates), -1),
        )

    @property
    def is_other(self) -> Bool[Tensor, "B N"]:
        """Which of them are not among the candidates that all sessions share."""
        return (self.items > 0) & (self.columns < 0)


@dataclass(frozen=True)
class Scored:
    """Scores of the candidates, and of the session's items that are not candidates."""

    scores: Scores
    """[E, C] scores of this process's candidates, after the prefixes of all processes."""
    items: Int[Tensor, "B N"]
    """Further candidates of this process's prefixes: their own items; 0 where there are fewer."""
    item_scores: Float[Tensor, "B N"]
    """Scores of `items`; -inf ranks below all candidates."""

    def to(self, device: torch.device) -> "Scored":
        """Move everything to a device."""
        return Scored(self.scores.to(device), self.items.to(device), self.item_scores.to(device))


SessionScorer = Callable[[Columns, Int[Tensor, " B"]], Scored]
MethodScorer = Callable[[Columns, Int[Tensor, " B"]], Scores | Float[Tensor, "B C"]]
"""A baseline's scores of the candidates, as `Scorer`, where most of them are the same after every
prefix as `FewScores`."""


def leaving_out(scorer: SessionScorer, is_left_out: Bool[Tensor, " n"]) -> SessionScorer:
    """Return a scorer without own items that no session may get.

    `is_left_out` is by catalogue index; items from n on are not left out.
    """

    def scored(columns: Columns, n_known: Int[Tensor, " B"]) -> Scored:
        found = scorer(columns, n_known)
        flags = is_left_out.to(found.items.device)
        last = len(flags) - 1
        is_out = flags[found.items.clamp(max=last)] & (found.items <= last)
        scores = found.item_scores.masked_fill(is_out, -torch.inf)
        return replace(found, items=found.items.masked_fill(is_out, 0), item_scores=scores)

    return scored


@dataclass(frozen=True)
class Reminders:
    """How a baseline ranks a session's own items, overriding its own scores of them.

    Args:
        rule: as `model.remind`; auto means none until `after_fit` decides.
        weight: weight of the rule boost.
        scale: scale of the rule boost, in events.
        repeats: the data set's rule; an item that it rules out as the next one keeps its score.
    """

    rule: Remind
    weight: float
    scale: float
    repeats: str = "keep"

    def after_fit(self, n_sessions: int, n_repeating: int) -> "Reminders":
        """Resolve `auto` from the number of sessions and of those that end with a repeated item."""
        if self.rule != "auto":
            return self
        share = n_repeating / max(1, n_sessions)
        return replace(self, rule="none" if share < FEW else "score" if share < MANY else "first")

    def __call__(self, scores: Scores, own: OwnItems) -> tuple[Scores, Float[Tensor, "B N"]]:
        """Return the scores with those of own items changed, and those without a column."""
        others = torch.full(own.items.shape, -torch.inf)
        if self.rule == "score" or not own.items.any():
            return scores, others
        if self.rule in {"none", "auto"}:
            # Below all others, the latest item first.
            return scores.replaced(own.columns, scores.floor() - 1 - own.steps), others
        is_reminded = own.steps >= self._first_step(own)
        values = self._raised(scores, own)
        columns = own.columns.where(is_reminded, -1)
        others = torch.where(own.is_other & is_reminded, values, others)
        return scores.replaced(columns, values), others

    def of_others(self, scores: Scores, own: OwnItems) -> Float[Tensor, "B N"]:
        """Return the scores of own items without a column; those of the candidates stay.

        The rule first ranks them above all candidates, any other one below.
        """
        lowest = torch.full(own.items.shape, -torch.inf)
        if self.rule != "first":
            return lowest
        is_reminded = own.is_other & (own.steps >= self._first_step(own))
        return torch.where(is_reminded, _highest(scores) + own.positions, lowest)

    def _first_step(self, own: OwnItems) -> int:
        """Return the events from a session's end to the first item that may come again."""
        return FIRST_STEP.get(self.repeats, own.steps.shape[1])

    def _raised(self, scores: Scores, own: OwnItems) -> Float[Tensor, "B N"]:
        """Return own items' raised scores, from their scores so far and the row's highest one."""
        highest = _highest(scores)
        if self.rule == "first":
            return highest + own.positions
        known = torch.stack([scores.at(each) for each in own.columns.T], 1).clamp(min=0)
        # In units of the row's best score: baselines have scores of any magnitude.
        unit = torch.where(highest > 0, highest, 1.0)
        return known + unit * self.weight * torch.exp(-own.steps / self.scale)


def with_own_items(scorer: Scorer, candidates: Int[Tensor, " C"]) -> SessionScorer:
    """Return a function that scores candidates, and ranks own items that are none below them."""

    def scored(columns: Columns, n_known: Int[Tensor, " B"]) -> Scored:
        scores = scorer(columns, n_known)
        # On the device of the model; sessions may be on another one.
        own = OwnItems.of(columns, n_known, candidates.to(scores.device))
        item_scores = scores.new_full(own.items.shape, -torch.inf)
        return Scored(DenseScores(scores), own.items * own.is_other, item_scores)

    return scored


def with_reminders(
    scorer: MethodScorer, candidates: Int[Tensor, " C"], reminders: Reminders
) -> SessionScorer:
    """Return a function that scores candidates and each session's own items, on the CPU."""
    candidates = candidates.cpu()

    def scored(columns: Columns, n_known: Int[Tensor, " B"]) -> Scored:
        own, found = OwnItems.of(columns, n_known, candidates), scorer(columns, n_known)
        found = DenseScores(found) if isinstance(found, Tensor) else found
        scores, item_scores = reminders(found, own)
        return Scored(scores, own.items * own.is_other, item_scores)

    return scored


def _highest(scores: Scores) -> Float[Tensor, "B 1"]:
    """Return each row's highest score, 0 without candidates."""
    highest = scores.best(1)[1]
    return highest if highest.shape[1] else torch.zeros(len(highest), 1)


def columns_of(items: Int[Tensor, "..."], candidates: Int[Tensor, " C"]) -> Int[Tensor, "..."]:
    """Index of each item among the candidates, which ascend; -1 if it is none of them."""
    columns = torch.searchsorted(candidates, items)
    padded = torch.nn.functional.pad(candidates, (0, 1))  # for items above the last candidate
    return columns.where(padded[columns] == items, -1)
