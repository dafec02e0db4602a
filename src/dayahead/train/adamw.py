"""AdamW that leaves the rows of a large table alone until a step reads them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import AdamW

CHUNK_ROWS = 2**16
"""Rows that are brought up to date at once where all are."""
MOST_STEPS = 2000
"""Steps after which all rows are brought up to date: what is held for each step is bounded."""
Rows = Int[Tensor, " k"]
_NO_STEP = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)[:, None]
"""The column of `WaitingRows.sums` of rows that wait for no step."""


class DeferredAdamW(AdamW):
    """AdamW (Loshchilov and Hutter 2019) whose rows without a gradient take their steps later.

    AdamW changes every row of a table at every step: one without a gradient still decays, and goes
    on by its momentum. Over a million items these passes are most of a step. Here the rows that a
    sparse gradient leaves out wait until they are read. n steps without a gradient then are one, of
    which only the sum does not have a closed form:

        weight <- D * weight - S * m / (sqrt(v) + eps),   m <- beta1^n * m,   v <- beta2^n * v

    D is the product of the steps' 1 - rate * decay, S the sum of rate * sqrt(1 - beta2^t) / (1 -
    beta1^t) * (beta1 / sqrt(beta2))^k, k = 1 ... n, decayed likewise. They depend on the row's last
    step alone, and so does the eps: the mean over the steps of AdamW's, each relative to the same
    sqrt(v), weighted by their parts of S. Weights are those of torch's AdamW up to rounding, and to
    a few per cent of a step where gradients are as small as eps. (TensorFlow's LazyAdam and torch's
    SparseAdam drop these steps instead.)

    Call `refresh` with the rows that a step reads before its forward pass, and without any before
    something else reads the table. A dense gradient is AdamW's.
    """

    def __init__(self, params: Iterable[dict[str, Any]], lr: float) -> None:
        super().__init__(params, lr=lr, fused=True)
        self.waiting: dict[Tensor, WaitingRows] = {}
        """Of each table that has had sparse gradients since it was last up to date."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None and table.grad.is_sparse:
                    self._update_rows(table, group)
                    table.grad = None
                elif table.grad is not None and table in self.waiting:
                    self._refresh(table, None)
                    del self.waiting[table]
        super().step()

    @torch.no_grad()
    def refresh(self, rows: Rows | None = None) -> None:
        """Let some rows of every table, each named once, take the steps that they wait for.

        None: all rows.
        """
        for table in self.waiting:
            self._refresh(table, rows)
        if rows is None:
            self.waiting = {}

    def _refresh(self, table: Tensor, rows: Rows | None) -> None:
        state, waiting = self.state[table], self.waiting[table]
        every = torch.arange(len(table)) if rows is None else rows
        for some in torch.split(waiting.among(every), CHUNK_ROWS):
            waiting.catch_up(some, table, state["exp_avg"], state["exp_avg_sq"])

    def _update_rows(self, table: Tensor, group: dict[str, Any]) -> None:
        """Update the rows of a sparse gradient, which are up to date; the others wait."""
        assert table.grad is not None
        gradient = table.grad.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(table)
            state["exp_avg_sq"] = torch.zeros_like(table)
        if table not in self.waiting:
            self.waiting[table] = WaitingRows(len(table), group["betas"], group["eps"])
        state["step"] += 1
        beta1, beta2 = group["betas"]
        step, rate = int(state["step"]), group["lr"]
        correction = (1 - beta2**step) ** 0.5
        decay, pull = 1 - rate * group["weight_decay"], rate * correction / (1 - beta1**step)
        mean = state["exp_avg"][rows].lerp_(values, 1 - beta1)
        square = state["exp_avg_sq"][rows].mul_(beta2).addcmul_(values, values, value=1 - beta2)
        denominator = square.sqrt().add_(group["eps"] * correction)
        table[rows] = table[rows].mul_(decay).addcdiv_(mean, denominator, value=-pull)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = mean, square
        self.waiting[table].add_step(rows, decay, pull, correction)
        if self.waiting[table].n_steps == MOST_STEPS:
            self._refresh(table, None)
            del self.waiting[table]


class WaitingRows:
    """The last step of each row of a table, and what the steps since do to a row without gradient.

    Args:
        n_rows: of the table.
        betas: AdamW's.
        eps: AdamW's.
    """

    def __init__(self, n_rows: int, betas: tuple[float, float], eps: float) -> None:
        self.betas = betas
        self.eps = eps
        self.last = torch.zeros(n_rows, dtype=torch.int64)
        # By last step: D, S and (beta1 / sqrt(beta2))^n of the class above, the sum of S with each
        # term times its eps, and beta2^(-n/2), by which sqrt(v) has fallen.
        self.sums = _NO_STEP.clone()

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return self.sums.shape[1] - 1

    def add_step(self, rows: Rows, decay: float, pull: float, correction: float) -> None:
        """Count a step that only these rows have taken.

        Args:
            rows: of the step's gradient.
            decay: what it multiplies weights by.
            pull: its learning rate, corrected for the bias of both moments.
            correction: root of the bias of the second moment.
        """
        beta1, beta2 = self.betas
        decays, pulls, fadings, slacks, growths = self.sums  # changed in place
        fadings *= beta1 / beta2**0.5
        growths /= beta2**0.5
        decays *= decay
        pulls.mul_(decay).add_(fadings, alpha=pull)
        slacks.mul_(decay).addcmul_(fadings, growths, value=pull * self.eps * correction)
        self.sums = torch.cat([self.sums, _NO_STEP], dim=1)
        self.last[rows] = self.n_steps

    def among(self, rows: Rows) -> Rows:
        """Return those of some rows that wait for a step."""
        return rows[self.last[rows] < self.n_steps]

    def catch_up(
        self,
        rows: Rows,
        table: Float[Tensor, "n d"],
        means: Float[Tensor, "n d"],
        squares: Float[Tensor, "n d"],
    ) -> None:
        """Let rows take the steps that they wait for, in place."""
        last = self.last[rows]
        n_missed = (self.n_steps - last).double()
        decay, pull, _, slack, _ = self.sums[:, last]
        epsilon = torch.where(pull > 0, slack / pull, self.eps)
        of_rows = decay, pull, epsilon, *(beta**n_missed for beta in self.betas)
        decay, pull, epsilon, fading1, fading2 = (each.to(table.dtype)[:, None] for each in of_rows)
        mean, square = means[rows], squares[rows]
        moved = mean / square.sqrt().add_(epsilon) * pull
        table[rows] = table[rows].mul_(decay).sub_(moved)
        means[rows], squares[rows] = mean.mul_(fading1), square.mul_(fading2)
        self.last[rows] = self.n_steps
