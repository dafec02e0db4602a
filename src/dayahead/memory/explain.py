"""Explain a score: what each feature adds to it."""

import torch
from jaxtyping import Float
from torch import Tensor

from dayahead.memory.head import Head

N_STEPS = 64


def contributions(
    head: Head,
    features: Float[Tensor, "C F"],
    context: Float[Tensor, " X"],
    column: int,
) -> Float[Tensor, " F"]:
    """Split the lead of a candidate over the mean of all C among its features.

    Integrated gradients (Sundararajan et al. 2017) from the mean standardised features to the
    candidate's: they sum to the difference of the two scores, but for the error of N_STEPS steps.
    """
    baseline = features.mean(0)
    difference = features[column] - baseline
    steps = (torch.arange(N_STEPS) + 0.5) / N_STEPS
    path = (baseline + steps[:, None] * difference).requires_grad_()  # [N_STEPS, F]
    total = head(path[None], context[None]).sum()
    [gradients] = torch.autograd.grad(total, [path])
    return gradients.mean(0) * difference
