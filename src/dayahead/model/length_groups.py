"""Groups of rows of similar length, in which a batch goes through the backbone."""

import numpy as np
from jaxtyping import Int
from torch import Tensor


def group_sizes(lengths: Int[Tensor, " B"], n_groups: int) -> list[int]:
    """Cut rows, the shorter before the longer, into groups with the fewest padded positions.

    Returns:
        Rows of each of up to `n_groups` groups, in order; a group is as wide as its longest row.
        Rows in another order are only padded more.
    """
    if n_groups == 1:
        return [len(lengths)]
    longest = np.maximum.accumulate(lengths.clamp(min=1).cpu().numpy())
    widths, counts = np.unique(longest, return_counts=True)  # [W], cuts between them alone
    ends = np.concatenate([[0], counts.cumsum()])
    # [i, j]: positions of a group of the widths from i to j; not possible where i > j.
    positions = np.triu((ends[1:] - ends[:-1, None]) * widths).astype(np.float64)
    positions[np.tril_indices(len(widths), -1)] = np.inf
    fewest = positions[0]  # [W], of the rows up to each width
    starts = []  # of the last group, by the widths up to which rows are cut
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
