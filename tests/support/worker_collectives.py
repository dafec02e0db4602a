"""Functions that tests of collectives run in worker processes."""

from pathlib import Path
from unittest.mock import patch

import torch
from torch.nn.parallel import DistributedDataParallel

from dayahead.core.files import write_json
from dayahead.distributed.barrier import SharedFile
from dayahead.distributed.collectives import Collectives, sum_gradients
from dayahead.distributed.process import Process
from dayahead.distributed.shared_memory import SharedMemory


def compare_with_torch(process: Process, folder: Path) -> None:
    """Write whether collectives of this run share memory and give what those of torch do."""
    rank, n_ranks = process.rank.index, process.rank.world_size
    ours, theirs = process.collectives, Collectives()
    generator = torch.Generator().manual_seed(rank)
    values = torch.randn(7 * n_ranks, 3, generator=generator)
    sent = [5 + (rank + other) % 3 for other in range(n_ranks)]
    is_same = {"shared": isinstance(ours, SharedMemory)}
    for name, call in {
        "all_gather": lambda each: each.all_gather(values[: rank + 1]),
        "all_to_all": lambda each: each.all_to_all(values[: sum(sent)], sent),
    }.items():
        (found, n_found), (wanted, n_wanted) = call(ours), call(theirs)
        is_same[name] = found.equal(wanted) and n_found == n_wanted
    for name, n in (("small", 1), ("large", 4000)):
        sums = list(torch.randn(n, 3, generator=generator).expand(2, -1, -1).clone())
        ours.all_reduce(sums[0])
        theirs.all_reduce(sums[1])
        is_same[name] = torch.allclose(*sums, rtol=0, atol=1e-5)
    is_same["gradients"] = all(
        _gradients(values, each).allclose(_gradients(values, None) * n_ranks, atol=1e-5)
        for each in (ours, theirs)
    )
    write_json(folder / f"{rank}.json", is_same)


def share_with_one_that_cannot(process: Process, folder: Path) -> None:
    """Write whether memory is shared although rank 1 opens no files, and what torch then sums."""

    def refuse(file: SharedFile, mode: str) -> None:
        raise PermissionError(str(file.path), mode)

    rank = process.rank.index
    with patch.object(SharedFile, "open", refuse if rank == 1 else SharedFile.open):
        memory = SharedMemory.create()
    values = torch.tensor([float(rank)])
    Collectives().all_reduce(values)
    is_sum = values.item() == sum(range(process.rank.world_size))
    write_json(folder / f"{rank}.json", [memory is not None, is_sum])


def _gradients(values: torch.Tensor, collectives: Collectives | None) -> torch.Tensor:
    """Gradients of a layer, summed over all ranks, or averaged by DDP itself."""
    torch.manual_seed(0)
    wrapped = DistributedDataParallel(torch.nn.Linear(3, 2))
    if collectives is not None:
        wrapped.register_comm_hook(collectives, sum_gradients)
    wrapped(values).pow(2).sum().backward()
    return torch.cat([each.grad.flatten() for each in wrapped.parameters()])
