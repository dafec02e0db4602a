"""What the processes of a run say to each other."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
TIMEOUT = timedelta(hours=1)
"""Of a collective: the others wait while one process hashes windows or writes a state."""


@dataclass(frozen=True)
class Rank:
    """One process among all of a run: it takes every `world_size`-th row, from row `index` on."""

    index: int
    world_size: int


@dataclass(frozen=True)
class Process:
    """This process among all of a run."""

    rank: Rank
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank.index == 0

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the device has instructions for bfloat16 products, not just the type."""
        if self.device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))

    def all_reduce(self, values: Tensor) -> Tensor:
        """Sum of `values` over all processes, on every process."""
        if self.rank.world_size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: T) -> T:
        """Give every process what the main one has; what the others pass is not looked at."""
        if self.rank.world_size == 1:
            return value
        held: list[Any] = [value if self.is_main else None]
        dist.broadcast_object_list(held, src=0)
        return cast("T", held[0])

    def all_gather(self, value: T) -> list[T]:
        """What every process has, by rank, on every process."""
        held: list[Any] = [value] * self.rank.world_size
        if self.rank.world_size > 1:
            dist.all_gather_object(held, value)
        return held
