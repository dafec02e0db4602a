"""Explain a score: what each feature adds to it."""

import torch
from jaxtyping import Float
from torch import Tensor

from dayahead.memory.head import Head
from dayahead.memory.head_examples import Examples

N_STEPS = 64
N_AT_ONCE = 128
"""Examples whose gradients are held at once."""


def contributions(head: Head, examples: Examples, column: int, own: int) -> Float[Tensor, " F"]:
    """Attribute a candidate's score, relative to the mean candidate, to its features.

    Integrated gradients (Sundararajan et al. 2017) from the mean standardised features to the
    candidate's: they sum to the difference of the two scores, but for the error of N_STEPS steps.
    What the gate adds, to all of the session's own items or to all others, goes to feature `own`.

    Args:
        head: scores the candidates.
        examples: a single example, standardised.
        column: the candidate's column.
        own: index of the feature that says whether a candidate is in the session.
    """
    [features], [is_candidate] = examples.features, examples.is_candidate
    baseline = features[is_candidate].mean(0)
    difference = features[column] - baseline
    # The midpoint rule: its error falls with the square of the number of steps.
    steps = (torch.arange(N_STEPS) + 0.5) / N_STEPS
    path = (baseline + steps[:, None] * difference).requires_grad_()  # [N_STEPS, F]
    total = head.evidence(path[None], examples.context).sum()
    [gradients] = torch.autograd.grad(total, [path])
    parts: Tensor = gradients.mean(0) * difference
    if head.gate is not None:
        # The gate acts on whole groups of candidates, so it is not on a path of features.
        with torch.no_grad():
            scores = head.evidence(examples.features, examples.context)
            [gated] = head.gate(scores, examples) - scores
        parts[own] += gated[column] - gated[is_candidate].mean()
    return parts


def mean_gradients(head: Head, examples: Examples) -> Float[Tensor, " F"]:
    """Return how much each standardised feature raises a score, over all candidates of examples.

    For a linear head these are its weights.
    """
    sums = torch.zeros(examples.features.shape[-1], dtype=torch.float64)
    for start in range(0, len(examples), N_AT_ONCE):
        part = examples.take(slice(start, start + N_AT_ONCE)).single()
        features = part.features.requires_grad_()
        total = head.evidence(features, part.context)[part.is_candidate].sum()
        [gradients] = torch.autograd.grad(total, [features])
        sums += gradients[part.is_candidate].sum(0, dtype=torch.float64)
    return (sums / examples.is_candidate.sum()).float()
