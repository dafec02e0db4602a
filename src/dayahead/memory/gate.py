"""Gate: splits the probability between the session's own items and all others."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from dayahead.memory.head_examples import Examples

# Finite: the logsumexp of an empty group would be -inf, and its gradient NaN.
_LOWEST = -1e9


class Gate(nn.Module):
    """The session's items get the probability p together, all others 1 - p: logit p = w . x + b.

    The scores come mostly from other sessions and say little about whether a visitor returns to an
    item. That is predicted by the session itself and by how often others returned after its last
    item. Like the repeat-explore mechanism of RepeatNet (Ren et al., AAAI 2019).

    Args:
        columns: columns of the context that are the gate's input x.
        n_best: number of best candidates over which probabilities are normalised: as many as the
            head learns from, however many it ranks.
    """

    def __init__(self, columns: list[int], n_best: int) -> None:
        super().__init__()
        self.columns = columns
        self.n_best = n_best
        self.linear = nn.Parameter(torch.zeros(len(columns)))
        self.bias = nn.Parameter(torch.zeros(()))

    def start(self, parts: Sequence[Examples]) -> None:
        """Initialise the bias from the share of examples whose target is in the session."""
        n_own = sum(int(part.is_own.gather(1, part.targets[:, None]).sum()) for part in parts)
        n = sum(int(part.is_own.any(1).sum()) for part in parts)
        with torch.no_grad():
            # One is added to each count, for a finite logit where a group has no target.
            self.bias.fill_(math.log((n_own + 1) / (n - n_own + 1)))

    def forward(self, scores: Float[Tensor, "B C"], examples: Examples) -> Float[Tensor, "B C"]:
        """Turn scores into logarithms of probabilities: a softmax in each group, then the gate."""
        is_own, is_other = examples.is_own, examples.is_candidate & ~examples.is_own
        logit = examples.context[:, self.columns] @ self.linear + self.bias
        has_both = is_own.any(1) & is_other.any(1)
        # Where one group is empty, the other one has all of the probability: a log-factor of 0.
        own, other = (
            torch.where(has_both, logsigmoid(each), 0.0)[:, None] for each in (logit, -logit)
        )
        of_own, of_others = own + self._logs(scores, is_own), other + self._logs(scores, is_other)
        return torch.where(is_own, of_own, of_others)

    def _logs(
        self, scores: Float[Tensor, "B C"], is_among: Bool[Tensor, "B C"]
    ) -> Float[Tensor, "B C"]:
        """Subtract the log of the normalising constant among some candidates."""
        of_group = scores.masked_fill(~is_among, _LOWEST)
        logs = of_group[:, : self.n_best].logsumexp(1, keepdim=True)
        if scores.shape[1] > self.n_best:
            # None of the best may be in the group: then its constant is that of all candidates.
            has_best = is_among[:, : self.n_best].any(1, keepdim=True)
            logs = torch.where(has_best, logs, of_group.logsumexp(1, keepdim=True))
        return scores - logs
