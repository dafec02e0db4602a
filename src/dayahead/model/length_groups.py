"""Splits a batch into groups of rows of similar length, which the backbone reads separately."""

import numpy as np
from jaxtyping import Int
from torch import Tensor

CUTS_PER_GROUP = 2
"""Rows are cut into this many equal parts per group, and a group is of whole parts."""


def group_sizes(lengths: Int[Tensor, " B"], n_groups: int) -> list[int]:
    """Cut rows, the shorter before the longer, into groups with the fewest padded positions.

    Batches share few sizes of groups this way. oneDNN compiles a bfloat16 product for each new
    shape and keeps a thousand: with a shape for every number of rows, a step on a CPU would take
    up to twice as long as its products.

    Returns:
        Rows of each of up to `n_groups` groups, in order; a group is as wide as its longest row.
        Rows in another order are only padded more.
    """
    if n_groups == 1:
        return [len(lengths)]
    # Few possible cuts, so that batches share the sizes of groups.
    step = -(-len(lengths) // (CUTS_PER_GROUP * n_groups))
    ends = np.minimum(np.arange(0, len(lengths) + step, step), len(lengths))  # [W + 1] cuts
    widths = np.maximum.accumulate(lengths.clamp(min=1).cpu().numpy())[ends[1:] - 1]
    # [i, j]: padded size of a group of the rows between cuts i and j + 1; infinite where i > j.
    positions = np.triu((ends[1:] - ends[:-1, None]) * widths).astype(np.float64)
    positions[np.tril_indices(len(widths), -1)] = np.inf
    # Dynamic programming: each round allows one more group and keeps where the last one starts.
    fewest = positions[0]  # [W] smallest size of the rows up to each cut
    starts = []  # for each number of groups: start of the last group, by the cut where it ends
    for _ in range(min(n_groups, len(widths)) - 1):
        before = np.concatenate([[0.0], fewest[:-1]])
        options = before[:, None] + positions
        starts.append(options.argmin(0))
        fewest = options.min(0)
    bounds = [len(widths)]
    while starts and bounds[-1]:
        bounds.append(int(starts.pop()[bounds[-1] - 1]))
    sizes: list[int] = np.diff(ends[sorted({0, *bounds})]).tolist()
    return sizes
