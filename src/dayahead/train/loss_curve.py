"""The loss within a fit: its mean in each of at most 20 parts of the steps."""

from itertools import pairwise
from typing import Final

from jaxtyping import Float
from torch import Tensor

Curve = tuple[tuple[int, float], ...]
"""Number of each part's last step, from 1 on, and the mean loss per target in it."""
N_PARTS: Final = 20


def loss_curve(sums: Float[Tensor, "S 2"]) -> Curve:
    """Return the curve of a fit from the loss and the number of targets, summed in each step."""
    n_steps = len(sums)
    n_parts = min(N_PARTS, n_steps)
    ends = [n_steps * (part + 1) // n_parts for part in range(n_parts)]
    parts = [sums[start:end].sum(0).tolist() for start, end in pairwise([0, *ends])]
    return tuple((end, loss / n) for end, (loss, n) in zip(ends, parts, strict=True) if n > 0)
