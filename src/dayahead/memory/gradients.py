"""Gradients of the head's loss: sums over parts of a batch, in threads and on processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from dayahead.distributed.process import Process
from dayahead.memory.head import Head
from dayahead.memory.head_examples import Examples
from dayahead.memory.threads import single_threads

PARTS = 2
"""Parts of a batch. They are the same for any number of threads and processes, and their gradients
are added in the same order, so that all fit the same head. More would cost more than they save."""
Gradients = Callable[[Examples, Int[Tensor, " R"]], float]
"""From examples and the rows of a batch to its loss; sets the gradients of the head."""


def loss_of(head: Head, batch: Examples, weight: float) -> Float[Tensor, ""]:
    """Return the listwise cross-entropy over candidates, of a part of a batch of this weight."""
    scores = head(batch).masked_fill(~batch.is_candidate, -torch.inf)
    losses = cross_entropy(scores, batch.targets, reduction="none")
    return (losses * batch.weights).sum() / max(weight, 1e-9)


@contextmanager
def shared_gradients(head: Head, process: Process) -> Iterator[Gradients]:
    """Compute gradients in all threads of all processes, of which each has the same head."""
    parameters = [*head.parameters()]
    sizes = [parameter.numel() for parameter in parameters]
    rank = process.rank
    own = [*range(rank.index, PARTS, rank.world_size)]

    def of_part(batch: Examples, weight: float) -> Tensor:
        loss = loss_of(head, batch, weight)
        # Not backward(), by which threads would add to the same gradients, in any order.
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([loss.detach()[None], *(each.flatten() for each in found)])

    with single_threads(len(own)) as in_threads:

        def gradients(examples: Examples, rows: Int[Tensor, " R"]) -> float:
            weight = float(examples.weights[rows].sum())
            parts = torch.tensor_split(rows, PARTS)
            batches = [examples.take(parts[part]).single() for part in own]
            found = torch.zeros(PARTS, 1 + sum(sizes))
            of_own = in_threads(lambda batch: of_part(batch, weight), batches)
            for part, values in zip(own, of_own, strict=True):
                found[part] = values
            # Those of other processes are zero here: the sum is exact, and the same on all.
            every = process.all_reduce(found.to(process.device)).cpu()
            [loss], *of_parameters = torch.split(every.sum(0), [1, *sizes])
            for parameter, values in zip(parameters, of_parameters, strict=True):
                parameter.grad = values.view_as(parameter)
            return float(loss)

        yield gradients
