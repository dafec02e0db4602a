"""Adagrad with momentum, the optimizer of GRU4Rec."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

EPSILON = 1e-6
"""Added to the sum of squares before its root is taken, as in the authors' program."""


class Adagrad(Optimizer):
    """Duchi et al. 2011, with momentum and updates of single rows, as GRU4Rec's authors train it.

    Per element, with gradient g: sum += g^2; velocity = momentum * velocity - rate * g / sqrt(sum +
    1e-6); weight += velocity. A row (of a vector: an element) whose gradient is all zero keeps its
    value and state, so that the cost of a step depends on the rows in it only. torch.optim's
    Adagrad has no momentum.

    Args:
        params: parameters with at least one dimension, or groups of them.
        lr: learning rate.
        momentum: from 0 to below 1.
    """

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float, momentum: float
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"], group["momentum"])

    def refresh(self, rows: Tensor | None = None) -> None:
        """Do nothing: rows without a gradient are up to date."""

    def _update(self, parameter: Tensor, gradient: Tensor, rate: float, momentum: float) -> None:
        names = ["sum", "velocity"] if momentum else ["sum"]
        state = self.state[parameter]
        for name in names:
            if name not in state:
                state[name] = torch.zeros_like(parameter)
        indices = None
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            indices, gradient = gradient.indices()[0], gradient.values()
        # Not reshape(n, -1), which is ambiguous for a table without rows.
        flat = gradient.reshape(len(gradient), math.prod(parameter.shape[1:]))
        # The norm takes a tenth of the time of `any`. It is 0 also where all squares underflow;
        # gradients that small would not change a weight.
        rows = torch.linalg.vector_norm(flat, dim=1).nonzero().squeeze(1)
        gradient = gradient[rows]
        rows = rows if indices is None else indices[rows]
        sums = state["sum"][rows] + gradient**2
        state["sum"][rows] = sums
        velocity = gradient / (sums + EPSILON).sqrt_() * -rate
        if momentum:
            velocity += momentum * state["velocity"][rows]
            state["velocity"][rows] = velocity
        parameter.index_add_(0, rows, velocity)
