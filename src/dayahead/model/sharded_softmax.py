"""The full softmax over rows that are shared out (Shoeybi et al. 2019), some states at a time.

What crosses over is the states of all processes, and a number for each of them.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx, once_differentiable

from dayahead.distributed.sharding import Shard


def shared_softmax_loss(
    states: Float[Tensor, "E d"],
    table: Float[Tensor, "m d"],
    bias: Float[Tensor, " m"],
    targets: Int[Tensor, " E"],
    shard: Shard,
    rows_per_chunk: int,
) -> Float[Tensor, ""]:
    """Sum of the cross entropy of those targets whose rows are held here, float32.

    The sum over the processes is that of all targets; what it is multiplied by before `backward`
    must be the same on all.

    Args:
        states: of all processes, in the same order everywhere.
        table: rows held here.
        bias: of these rows.
        targets: items of all processes, numbered from 0.
        shard: which rows those are.
        rows_per_chunk: states whose logits are held at once, the same on all processes.
    """
    loss: Tensor = _SharedSoftmax.apply(states, table, bias, targets, shard, rows_per_chunk)  # type: ignore[no-untyped-call]
    return loss


class _SharedSoftmax(Function):
    """Takes each chunk's gradients along with its loss, so that logits are computed once."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917
        ctx: FunctionCtx,
        states: Tensor,
        table: Tensor,
        bias: Tensor,
        targets: Tensor,
        shard: Shard,
        rows_per_chunk: int,
    ) -> Tensor:
        of_states = torch.empty_like(states)
        of_table, of_bias = (torch.zeros_like(each, dtype=torch.float32) for each in (table, bias))
        losses = []
        inputs = (torch.split(each, rows_per_chunk) for each in (states, targets, of_states))
        for part, asked, of_part in zip(*inputs, strict=True):
            logits = torch.addmm(bias, part, table.T).float()
            answers = shard.local_indices(asked)
            scores = logits[answers]
            totals = _softmax_in_place(logits, shard)
            losses.append(totals[answers[0]] - scores)
            logits[answers] -= 1
            slopes = logits.to(table.dtype)
            torch.mm(slopes, table, out=of_part)
            if ctx.needs_input_grad[1]:  # type: ignore[attr-defined]
                _add_product(of_table, slopes.T, part)
            of_bias += logits.sum(0)
        ctx.gradients = of_states, of_table, of_bias  # type: ignore[attr-defined]
        return torch.cat(losses).sum()

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients  # type: ignore[attr-defined]
        del ctx.gradients  # type: ignore[attr-defined]
        return *(each.mul_(gradient) for each in gradients), None, None, None


def _softmax_in_place(logits: Float[Tensor, "t m"], shard: Shard) -> Float[Tensor, " t"]:
    """Make logits what they are of the softmax over all rows; the logarithm of its sum."""
    highest = logits.amax(1)
    sums = logits.sub_(highest[:, None]).exp_().sum(1)
    totals = shard.stack(highest + sums.log()).logsumexp(0)
    logits *= (highest - totals).exp()[:, None]
    return totals


def _add_product(total: Float[Tensor, "m d"], left: Tensor, right: Tensor) -> None:
    """Add a product to a sum in float32."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
