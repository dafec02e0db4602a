"""States of trainers between processes: sharded tables in parts, everything else whole."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from dayahead.distributed.process import Process
from dayahead.model.checkpoint import WEIGHTS
from dayahead.model.model import Model
from dayahead.model.tensor_files import AnyTensor, ShardedTensor, StoredTensor
from dayahead.train.optimizer import MOMENTS
from dayahead.train.trainers import MOMENT


def sharded_state(
    state: Mapping[str, Tensor], model: Model, process: Process
) -> dict[str, AnyTensor]:
    """Wrap the sharded tables among weights or a trainer's state, on the CPU, as ShardedTensor."""
    return {
        name: ShardedTensor(model.shard, tensor, model.n_items, process.device)
        if _is_sharded(name, model)
        else tensor
        for name, tensor in state.items()
    }


def scatter_state(
    state: Mapping[str, Tensor | StoredTensor] | None,
    model: Model,
    process: Process,
) -> Mapping[str, Tensor]:
    """Give every process its own part of the main process's state; a collective.

    The state is ignored in other processes; the model may still be without rows. A sharded table in
    a file is read some rows at a time.
    """
    state = state or {}
    if process.rank.world_size == 1:
        return {name: _whole(each) for name, each in state.items()}
    tensors = process.broadcast([(name, each.shape, each.dtype) for name, each in state.items()])
    own = {}
    for name, shape, dtype in tensors:
        whole = state.get(name)
        if _is_sharded(name, model):
            like = torch.empty((0, *shape[1:]), dtype=dtype, device=process.device)
            own[name] = model.shard.scatter_rows(whole, like, shape[0])
        else:
            sent = torch.empty(shape, dtype=dtype) if whole is None else _whole(whole)
            own[name] = sent.to(process.device)
            dist.broadcast(own[name], src=0)
    return own


def _whole(tensor: Tensor | StoredTensor) -> Tensor:
    return tensor.whole() if isinstance(tensor, StoredTensor) else tensor


def _is_sharded(name: str, model: Model) -> bool:
    """Whether a tensor of a state, by its name, has one row per item and is sharded by them."""
    name = name.removeprefix(WEIGHTS).removeprefix(MOMENT)
    parameter, _, key = name.rpartition(".")
    return name in model.sharded or (key in MOMENTS and parameter in model.sharded)
