"""A step with sharded items (compute.shard_items): predicted for many GPUs, checked here.

The first table is on paper only: bytes that each of 32 GPUs keeps or sends, and the seconds these
take at the speeds of GPU, 512 sessions of 20 targets each. The second counts the bytes that 2 and 4
processes of one thread send in a step over 100,000 items, next to those predicted, and compares the
CPU seconds of a process with those of one alone, of which it should need a half and a quarter.

Command: python benchmarks/scale_out.py [processes] [...]
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from dayahead.core.columns import ITEM_ID
from dayahead.core.files import read_json, write_json
from dayahead.distributed.collectives import Collectives
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from dayahead.train.batches import LoadedBatches
from dayahead.train.trainers import GradientTrainer
from measurement import print_header
from workload import build_model, default_params, equal_sessions, gpt2_params

LENGTH = 21
"""Events of a session, one more than there are targets."""
N_SESSIONS, N_ITEMS = 128, 100_000
"""Of the measured step, over all processes."""
ROUNDS = 3
FLOAT32, BFLOAT16, INT64 = 4, 2, 8
"""Bytes."""
PASS_BYTES = 54
"""Read and written per logit from the product that gives it to the products it goes into."""


@dataclass(frozen=True)
class Machine:
    """Speeds per second of one process."""

    flop: float
    memory: float
    """Bytes read or written."""
    network: float
    """Bytes sent."""
    latency: float
    """Seconds of a collective."""


GPU = Machine(flop=600e12, memory=3.35e12 * 0.8, network=50e9, latency=50e-6)
"""An H100 at the share of its peak that large bfloat16 products reach, 400 Gb/s each."""


@dataclass(frozen=True)
class Step:
    """Sizes of a training step."""

    n_processes: int
    n_items: int
    dim: int
    n_sessions: int
    """Of one process."""
    value_bytes: int
    """Of a hidden state's number as it is sent."""

    @property
    def n_own(self) -> int:
        """Rows of the table on one process."""
        return self.n_items // self.n_processes

    @property
    def n_targets(self) -> int:
        """Of one process."""
        return self.n_sessions * (LENGTH - 1)

    @property
    def n_all_targets(self) -> int:
        """Of all processes: each scores them by its own rows."""
        return self.n_targets * self.n_processes

    def kept_bytes(self) -> dict[str, int]:
        """Bytes that a process holds, by what for."""
        table = self.n_own * self.dim * FLOAT32
        return {
            "table": table,
            "optimizer state": 2 * table,
            "gradient": table,
            "states and their gradients": 2 * self.n_all_targets * self.dim * self.value_bytes,
            "logits of a chunk": self.dim * self.n_own * FLOAT32,
        }

    def sent_bytes(self) -> dict[str, int]:
        """Bytes that a process sends to others, by what for; events are of different items."""
        others, n_events = self.n_processes - 1, self.n_sessions * LENGTH
        looked_up = n_events * others // self.n_processes
        states = others * self.n_targets * self.dim * self.value_bytes
        return {
            "rows looked up, and gradients": looked_up * (2 * self.dim * FLOAT32 + INT64),
            "states": states,
            "gradients of states": states,
            "targets": others * self.n_targets * INT64,
            "sums of the softmax": others * self.n_all_targets * FLOAT32,
        }

    def seconds(self, machine: Machine) -> dict[str, float]:
        """Seconds of a step, by what for; chunks are of as many states as they have numbers."""
        n_logits = self.n_all_targets * self.n_own
        n_chunks = self.n_all_targets / self.dim
        table = self.n_own * self.dim * FLOAT32
        return {
            "products": 6 * n_logits * self.dim / machine.flop,
            "passes over logits": PASS_BYTES * n_logits / machine.memory,
            "adding to the table's gradient": 3 * n_chunks * table / machine.memory,
            "AdamW": 7 * table / machine.memory,
            "sending": sum(self.sent_bytes().values()) / machine.network,
            "waiting for collectives": n_chunks * machine.latency,
        }


@contextmanager
def counted_bytes() -> Iterator[Counter[str]]:
    """Count the bytes that this process sends to others to exchange rows and states."""
    sent: Counter[str] = Counter()
    exchange = dist.all_to_all_single

    def counted(received: Tensor, values: Tensor, *sizes: list[int], **more: Any) -> None:  # noqa: ANN401
        n_own = sizes[1][dist.get_rank()] if sizes else 1
        sent["bytes"] += (len(values) - n_own) * values[:1].nbytes
        exchange(received, values, *sizes, **more)

    with patch.object(dist, "all_to_all_single", counted):
        yield sent


def measure(process: Process, folder: Path) -> None:
    """Write what a step of this process sends, and its CPU seconds."""
    params = gpt2_params(default_params())
    shard = Shard(process.rank.index, process.rank.world_size, Collectives())
    training = replace(params.training, precision="float32")
    trainer = GradientTrainer(build_model(params, LENGTH, shard), training, process)
    trainer.grow({ITEM_ID: N_ITEMS})
    sessions = equal_sessions(N_SESSIONS, LENGTH, N_ITEMS)
    batch = LoadedBatches(sessions, [torch.arange(N_SESSIONS)], process.rank)
    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.process_time()
        with counted_bytes() as sent:
            trainer.fit("benchmark", [batch], lambda _: None)
        seconds.append(time.process_time() - start)
    found = {"sent": sent["bytes"], "seconds": statistics.median(seconds[1:])}
    write_json(folder / f"{process.rank.index}.json", found)


def measured(n_processes: int) -> dict[str, float]:
    """Return the means over so many processes of what `measure` writes."""
    compute = default_params().compute
    is_sharded = n_processes > 1
    compute = replace(compute, processes=n_processes, threads=1, shard_items=is_sharded)
    with TemporaryDirectory() as folder:
        run_processes(measure, compute, Path(folder))
        each = [read_json(path) for path in Path(folder).glob("*.json")]
    return {name: statistics.mean(one[name] for one in each) for name in each[0]}


def print_prediction(step: Step, machine: Machine) -> None:
    """Print bytes and seconds of each part of a step."""
    for title, parts in (("keeps", step.kept_bytes()), ("sends", step.sent_bytes())):
        for name, size in parts.items():
            print(f"{title}  {name:30s} {size / 1e6:10.1f} MB")
    seconds = step.seconds(machine)
    for name, duration in seconds.items():
        print(f"takes  {name:30s} {1e3 * duration:10.1f} ms")
    total = sum(seconds.values())
    n_sessions = step.n_sessions * step.n_processes
    print(f"takes  {'in all':30s} {1e3 * total:10.1f} ms, {n_sessions / total:,.0f} sessions/s")


def main(numbers: list[int]) -> None:
    """Print the prediction, then compare with these numbers of processes."""
    print_header()
    step = Step(n_processes=32, n_items=10_000_000, dim=512, n_sessions=512, value_bytes=BFLOAT16)
    print("predicted: 32 GPUs, 10 M items, d 512")
    print_prediction(step, GPU)
    alone = measured(1)["seconds"]
    print(f"measured, CPU seconds of a step: 1 process {alone:.2f}")
    for n_processes in numbers:
        step = Step(n_processes, N_ITEMS, 128, N_SESSIONS // n_processes, FLOAT32)
        found, wanted = measured(n_processes), sum(step.sent_bytes().values())
        print(
            f"{n_processes} processes: each {found['seconds']:.2f} ({alone / n_processes:.2f} "
            f"expected), sends {found['sent'] / 1e6:.3f} MB ({wanted / 1e6:.3f} expected)",
            flush=True,
        )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [2, 4])
