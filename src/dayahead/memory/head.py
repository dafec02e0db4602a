"""Heads: they score candidates from their features and the context."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.memory.gate import Gate
from dayahead.memory.head_examples import Examples
from dayahead.memory.moments import moments

LIMIT = 8.0
"""Standardised features and context are clipped to plus or minus this many deviations."""
_LEAST_STD = 1e-3
"""A column with a smaller deviation counts as constant and is not divided by it."""


class Head(nn.Module):
    """s_j = w . f_j + v . ReLU(A f_j + B x + b), of standardised features f and context x.

    w and v start at zero; `width` hidden units. With width 0 it is a conditional logit (McFadden
    1974). A gate splits the probability between the session's own items and all others.

    Args:
        n_features: number of features F.
        n_context: size of the context X.
        width: hidden units.
        seed: seed of the initial A and B.
        gate: between the session's items and others; None: scores are s alone.
    """

    features_mean: Float[Tensor, " F"]
    features_std: Float[Tensor, " F"]
    context_mean: Float[Tensor, " X"]
    context_std: Float[Tensor, " X"]
    n_standardised: Tensor
    """Number of examples behind mean and deviation, 0 before the first window."""

    def __init__(
        self, n_features: int, n_context: int, width: int, seed: int, gate: Gate | None
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.linear = nn.Parameter(torch.zeros(n_features))
        self.of_features = nn.Parameter(_uniform(width, n_features, generator))
        self.of_context = nn.Parameter(_uniform(width, n_context, generator))
        self.bias = nn.Parameter(torch.zeros(width))
        self.out = nn.Parameter(torch.zeros(width))
        self.gate = gate
        for name, size in (("features", n_features), ("context", n_context)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))
        self.register_buffer("n_standardised", torch.zeros((), dtype=torch.int64))

    def learn_scale(self, parts: Sequence[Examples]) -> None:
        """Compute mean, deviation and the gate's initial bias from examples, if there are any."""
        n_examples = sum(map(len, parts))
        if not n_examples:
            return
        features = [(each.features.flatten(0, 1), each.is_candidate.flatten()) for each in parts]
        self._set_scale("features", features)
        context = [(each.context, torch.ones(len(each), dtype=torch.bool)) for each in parts]
        self._set_scale("context", context)
        self.n_standardised.fill_(n_examples)
        if self.gate is not None:
            self.gate.start(parts)

    def _set_scale(self, name: str, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        found = moments([(values.numpy(), counts.numpy()) for values, counts in parts])
        mean, std = (torch.from_numpy(each) for each in found)
        getattr(self, f"{name}_mean")[:] = mean
        getattr(self, f"{name}_std")[:] = torch.where(std > _LEAST_STD, std, 1.0)

    def scaled_column(self, feature: Float[Tensor, "B C"], column: int) -> Float[Tensor, "B C"]:
        """Standardise values of one feature."""
        return _standardised(feature, self.features_mean[column], self.features_std[column])

    def scaled(self, examples: Examples) -> Examples:
        """Standardise features and context."""
        return replace(
            examples,
            features=_standardised(examples.features, self.features_mean, self.features_std),
            context=_standardised(examples.context, self.context_mean, self.context_std),
        )

    def forward(self, examples: Examples) -> Float[Tensor, "B C"]:
        """Score candidates of standardised examples."""
        scores = self.evidence(examples.features, examples.context)
        return scores if self.gate is None else self.gate(scores, examples)

    def evidence(
        self, features: Float[Tensor, "B C F"], context: Float[Tensor, "B X"]
    ) -> Float[Tensor, "B C"]:
        """Return s from standardised features and context."""
        offset = context @ self.of_context.T + self.bias  # [B, H]
        hidden = features @ self.of_features.T  # [B, C, H]
        hidden += offset[:, None]  # in place, as it is large
        return features @ self.linear + hidden.relu_() @ self.out


class Mixture(Head):
    """s_j = log sum_k softmax(w)_k exp(f_jk), over features f that are log-probabilities.

    The interpolation of kNN-LM (Khandelwal et al. 2020), with any number of sources; the context
    is not used. `is_share` [F] says which features are log-probabilities.
    """

    columns: Int[Tensor, " K"]

    def __init__(self, is_share: list[bool], n_context: int, seed: int) -> None:
        super().__init__(len(is_share), n_context, 0, seed, gate=None)
        self.register_buffer("columns", torch.tensor(is_share).nonzero()[:, 0], persistent=False)

    def evidence(
        self, features: Float[Tensor, "B C F"], context: Float[Tensor, "B X"]
    ) -> Float[Tensor, "B C"]:
        """Return s from standardised features."""
        # Undo the standardisation: only log-probabilities can be mixed as probabilities.
        logs = features * self.features_std + self.features_mean
        shares = self.linear[self.columns].log_softmax(0)
        return (logs[..., self.columns] + shares).logsumexp(-1)


def _standardised(values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return deviations from the mean, cut off at LIMIT."""
    return (values - mean).div_(std).clamp_(-LIMIT, LIMIT)


def _uniform(n_out: int, n_in: int, generator: torch.Generator) -> Float[Tensor, "O I"]:
    """Draw weights as nn.Linear does, from a generator of their own."""
    return (2 * torch.rand(n_out, n_in, generator=generator) - 1) / math.sqrt(n_in)
