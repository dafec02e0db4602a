"""Gather and scatter the states of sharded models, so that saved states are always whole."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from dayahead.distributed.process import Process
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.train.optimizer import MOMENTS

_PREFIXES = ("weights.", "moments.")


def gather_state(
    state: Mapping[str, Tensor], model: NextItemModel | CountingModel, process: Process
) -> dict[str, Tensor]:
    """Gather a whole state in the main process; a collective.

    Args:
        state: this process's weights or optimizer state by name, on the CPU.
        model: that the state belongs to.
        process: this process. Other processes than the main one get their own state back.
    """
    return {
        name: model.shard.gather_rows(tensor, model.n_items, process.device)
        if isinstance(model, NextItemModel) and _is_sharded(name, model)
        else tensor
        for name, tensor in state.items()
    }


def scatter_state(
    state: Mapping[str, Tensor] | None, model: NextItemModel | CountingModel, process: Process
) -> Mapping[str, Tensor]:
    """Give every process its own part of the main process's state; a collective.

    Args:
        state: the whole state in the main process; ignored elsewhere.
        model: that the state is for, still without rows.
        process: this process.
    """
    state = state or {}
    if process.rank.world_size == 1:
        return state
    tensors = process.broadcast([(name, each.shape, each.dtype) for name, each in state.items()])
    own = {}
    for name, shape, dtype in tensors:
        whole = state.get(name)
        if isinstance(model, NextItemModel) and _is_sharded(name, model):
            like = torch.empty((0, *shape[1:]), dtype=dtype, device=process.device)
            own[name] = model.shard.scatter_rows(whole, like, shape[0])
        else:
            sent = torch.empty(shape, dtype=dtype) if whole is None else whole
            own[name] = sent.to(process.device)
            dist.broadcast(own[name], src=0)
    return own


def _is_sharded(name: str, model: NextItemModel) -> bool:
    """Whether a tensor of a state, by its name, has one row per item and is sharded by them."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    parameter, _, key = name.rpartition(".")
    return name in model.sharded or (key in MOMENTS and parameter in model.sharded)
