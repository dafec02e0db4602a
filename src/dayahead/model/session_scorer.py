"""What evaluation and service score sessions with, whatever the model."""

from jaxtyping import Int
from torch import Tensor

from dayahead.model.baselines import Baseline
from dayahead.model.next_item import NextItemModel
from dayahead.model.own_items import SessionScorer, with_own_items


def session_scorer(
    model: NextItemModel | Baseline, candidates: Int[Tensor, " C"], *, overwrites: bool = False
) -> SessionScorer:
    """Return a function that scores candidates and each session's own items, until the next fit.

    Args:
        model: a fitted one.
        candidates: of all sessions, as vocabulary indices; they ascend.
        overwrites: whether a network may overwrite the scores that it returned last.
    """
    if isinstance(model, Baseline) and model.reminders is not None:
        return with_own_items(model.method_scorer(candidates), candidates, model.fitted_reminders)
    if isinstance(model, NextItemModel):
        return with_own_items(model.scorer(candidates, overwrites=overwrites), candidates, None)
    return with_own_items(model.scorer(candidates), candidates, None)
