"""A state on its way between the main process, which keeps it whole, and what each process holds.

Whatever the number of processes that shared the item table out, what is kept is the same.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from dayahead.distributed.process import Process
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.train.optimizer import MOMENTS

_OF_A_STATE = ("weights.", "moments.")


def gather_state(
    state: Mapping[str, Tensor], model: NextItemModel | CountingModel, process: Process
) -> dict[str, Tensor]:
    """Put a state together in the main process; every process calls this with its own.

    Args:
        state: weights or moments by name, on the CPU.
        model: that they belong to.
        process: this one. Where it is not the main one, the state stays as it is.
    """
    return {
        name: model.shard.gather_rows(tensor, model.n_items, process.device)
        if isinstance(model, NextItemModel) and _is_shared_out(name, model)
        else tensor
        for name, tensor in state.items()
    }


def scatter_state(
    state: Mapping[str, Tensor] | None, model: NextItemModel | CountingModel, process: Process
) -> Mapping[str, Tensor]:
    """Give every process its own of the main process's state; every process calls this.

    Args:
        state: whole, in the main process; not looked at elsewhere.
        model: that it is for, still empty.
        process: this one.
    """
    state = state or {}
    if process.rank.world_size == 1:
        return state
    kinds = process.broadcast([(name, each.shape, each.dtype) for name, each in state.items()])
    own = {}
    for name, shape, dtype in kinds:
        whole = state.get(name)
        if isinstance(model, NextItemModel) and _is_shared_out(name, model):
            like = torch.empty((0, *shape[1:]), dtype=dtype, device=process.device)
            own[name] = model.shard.scatter_rows(whole, like, shape[0])
        else:
            sent = torch.empty(shape, dtype=dtype) if whole is None else whole
            own[name] = sent.to(process.device)
            dist.broadcast(own[name], src=0)
    return own


def _is_shared_out(name: str, model: NextItemModel) -> bool:
    """Whether a tensor of this name has a row for each item, and each process some of them."""
    for prefix in _OF_A_STATE:
        name = name.removeprefix(prefix)
    parameter, _, moment = name.rpartition(".")
    return name in model.sharded or (moment in MOMENTS and parameter in model.sharded)
