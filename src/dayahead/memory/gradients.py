"""Gradients of the head's loss: sums over parts of a batch, which threads share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from dayahead.memory.head import Head
from dayahead.memory.head_examples import Examples
from dayahead.memory.threads import single_threads

PARTS = 2
"""Parts of a batch, on any number of threads: their gradients are always the same, and are added in
the same order. Each costs a tenth of a step, so that more of them would hardly gain."""
Gradients = Callable[[Examples, Int[Tensor, " R"]], float]
"""From examples and the rows of a batch to its loss; sets the gradients of the head."""


def loss_of(head: Head, batch: Examples, weight: float) -> Float[Tensor, ""]:
    """Return the listwise cross-entropy over candidates, of a part of a batch of this weight."""
    scores = head(batch).masked_fill(~batch.is_candidate, -torch.inf)
    losses = cross_entropy(scores, batch.targets, reduction="none")
    return (losses * batch.weights).sum() / max(weight, 1e-9)


@contextmanager
def gradients_in_parts(head: Head) -> Iterator[Gradients]:
    """Compute the gradients of each batch in the process's threads, the same on any number."""
    parameters = [*head.parameters()]

    def of_part(examples: Examples, weight: float, rows: Int[Tensor, " r"]) -> list[Tensor]:
        loss = loss_of(head, examples.take(rows).single(), weight)
        # Not backward(), by which threads would add to the same gradients, in any order.
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return [loss.detach(), *found]

    with single_threads(PARTS) as in_threads:

        def gradients(examples: Examples, rows: Int[Tensor, " R"]) -> float:
            weight = float(examples.weights[rows].sum())
            parts = torch.tensor_split(rows, PARTS)
            found = in_threads(partial(of_part, examples, weight), parts)
            loss, *sums = (reduce(torch.add, each) for each in zip(*found, strict=True))
            for parameter, values in zip(parameters, sums, strict=True):
                parameter.grad = values
            return float(loss)

        yield gradients
