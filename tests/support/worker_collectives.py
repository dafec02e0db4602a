"""Functions that tests of collectives run in worker processes."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dayahead.core.files import write_json
from dayahead.distributed.collectives import Collectives, sum_gradients
from dayahead.distributed.process import Process


def numbers(rank: int, n: int) -> torch.Tensor:
    """Values of a rank, which any process can compute."""
    return torch.arange(3 * n).view(n, 3) + 1000 * (rank + 1)


def n_sent(rank: int, other: int) -> int:
    """How many values a rank sends to another: none to some."""
    return (rank + 2 * other) % 3


def compare_with_known(process: Process, folder: Path) -> None:
    """Write which collectives gave what each process knows that they must."""
    rank, n_ranks = process.rank.index, process.rank.world_size
    every = range(n_ranks)
    collectives = Collectives(dist.new_group())
    sent = [n_sent(rank, other) for other in every]
    gathered, lengths = collectives.all_gather(numbers(rank, rank))
    received, n_of = collectives.all_to_all(numbers(rank, sum(sent)), sent)
    parts = [
        numbers(other, sum(n_sent(other, to) for to in every)).split(
            [n_sent(other, to) for to in every]
        )[rank]
        for other in every
    ]
    found = {
        "all_gather": gathered.equal(torch.cat([numbers(other, other) for other in every]))
        and lengths == list(every),
        "all_to_all": received.equal(torch.cat(parts))
        and n_of == [n_sent(other, rank) for other in every],
        "gradients": _gradients(rank, is_summed=True).allclose(
            _gradients(rank, is_summed=False) * n_ranks
        ),
    }
    write_json(folder / f"{rank}.json", found)


def _gradients(rank: int, *, is_summed: bool) -> torch.Tensor:
    """Gradients of a layer, summed over all ranks, or averaged by DDP itself."""
    torch.manual_seed(0)
    wrapped = DistributedDataParallel(torch.nn.Linear(3, 2))
    if is_summed:
        wrapped.register_comm_hook(None, sum_gradients)
    wrapped(numbers(rank, 4) / 1000).pow(2).sum().backward()
    return torch.cat([each.grad.flatten() for each in wrapped.parameters()])
