"""Collectives of torch.distributed for tensors of unequal lengths, and a hook for DDP."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

TIMEOUT = timedelta(hours=1)
"""Timeout of a collective: the others wait while one process hashes windows or writes a state."""
Sizes = list[int]
"""One number per rank."""


class Collectives:
    """Collectives of a group of processes.

    Args:
        group: the processes; None: all of them.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group

    def all_gather(self, values: Tensor, n_of: Sizes | None = None) -> tuple[Tensor, Sizes]:
        """Concatenate the values of all ranks; return them, and how many are of each rank.

        By all_to_all, which moves as many bytes: all_gather needs equal lengths, and in gloo it
        takes up to twice as long.

        Args:
            values: values of this rank.
            n_of: number of values of each rank, if known.
        """
        n_ranks = dist.get_world_size(self.group)
        copies = values.repeat(n_ranks, *[1] * (values.dim() - 1))
        return self.all_to_all(copies, [len(values)] * n_ranks, n_of)

    def all_to_all(
        self, values: Tensor, sent: Sizes, received: Sizes | None = None
    ) -> tuple[Tensor, Sizes]:
        """Send the first `sent[0]` values to rank 0, and so on.

        Args:
            values: values of this rank.
            sent: number of them for each rank.
            received: number that each rank sends to this one, if known.

        Returns:
            The values received, and how many are of each rank.
        """
        if received is None:
            n_sent = torch.tensor(sent, device=values.device)
            n_received = torch.empty_like(n_sent)
            dist.all_to_all_single(n_received, n_sent, group=self.group)
            received = n_received.tolist()
        result = values.new_empty((sum(received), *values.shape[1:]))
        dist.all_to_all_single(result, values.contiguous(), received, sent, group=self.group)
        return result, received


def sum_gradients(group: dist.ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Sum a bucket of DDP's gradients over all ranks: a communication hook.

    DDP's own hook averages, which takes one more pass over the gradients of the item table.
    """
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    sums: Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return sums
