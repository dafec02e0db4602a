"""Sessions per second of two processes of one thread against one of one thread.

Steps and sessions are those of throughput.py: GPT-2/clm at d 128, 2 layers, 4 heads over 20,000
items, by batches of 256 and of 1,024 sessions. Both processes stand all the time and take turns
within one run, so that ratios hold where the machine's speed drifts; medians are told.

one       all the work in one process, while the other waits
two       shared out by sessions, gradients summed by DDP
items     the items shared out too (compute.shard_items), so that no gradient of theirs is sent
each      both do all of the work at once and never speak: what the machine itself allows, less than
          2 because two cores share memory, cache and power

What a step of 256 must take: 1,000 targets * 20,000 items * 128 * 2 for the scores and twice that
for their gradients are 15 GFLOP, the body adds 3: 165 ms on a core that multiplies float32 at 111
GFLOP/s, which two processes share. Not shared is what goes over the 3 M parameters: AdamW, their
norm, zeros and sums of gradients, and 12 MB a step that a process sends and receives, for which
gloo on the loopback takes 7 ms of a core. That does not grow with the batch. In bfloat16 products
take a quarter of the time, and the rest as long.

Command: python benchmarks/processes.py [float32] [bfloat16]
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch.distributed as dist

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.train.batches import MemoryBatches, shuffled_rows, sorted_rows
from dayahead.train.evaluate import Targets, evaluate
from dayahead.train.trainers import GradientTrainer
from facts import machine_facts
from throughput import ALONE, N_ITEMS, N_SESSIONS, built_model, generated_sessions

ROUNDS = 5
BATCHES = 256, 1024
Work = Callable[[], object]


def works(process: Process, params: Params, batch_size: int, shard: Shard) -> dict[str, Work]:
    """A pass of training and one of measuring, this process's share of it."""
    sessions = generated_sessions(1)
    training = replace(params.training, batch_size=batch_size, epochs=1)
    learner = GradientTrainer(built_model(params, shard), training, process)
    learner.grow({ITEM_ID: N_ITEMS})
    plan = shuffled_rows(sessions.lengths, batch_size, seed=1)
    epoch = [MemoryBatches(sessions, plan, process.rank)]
    by_length = MemoryBatches(sessions, sorted_rows(sessions.lengths, 512), process.rank)
    candidates = np.arange(N_RESERVED, N_RESERVED + N_ITEMS, dtype=np.int32)
    asked = Targets.last(N_SESSIONS)
    return {
        "training": lambda: learner.fit("benchmark", epoch, lambda _: None),
        "measuring": lambda: evaluate(learner.model, by_length, asked, candidates, process),
    }


def seconds(work: Work | None) -> float:
    """Of one turn, which begins and ends for both processes together."""
    dist.barrier()
    start = time.perf_counter()
    if work is not None:
        work()
    dist.barrier()
    return time.perf_counter() - start


def run(process: Process, params: Params) -> None:
    """Measure at each size of a batch."""
    shard = Shard.create(process.rank)
    for batch_size in BATCHES:
        alone = works(Process(ALONE, process.device), params, batch_size, WHOLE)
        together = works(process, params, batch_size, WHOLE)
        apart = works(process, params, batch_size, shard)
        told = f"{params.training.precision}, batch {batch_size}"
        take_turns(process, told, alone, together, apart)


def take_turns(
    process: Process,
    told: str,
    alone: dict[str, Work],
    together: dict[str, Work],
    apart: dict[str, Work],
) -> None:
    """Print the medians."""
    for name in alone:
        turns = {
            "one": alone[name] if process.is_main else None,
            "two": together[name],
            "items": apart[name],
            "each": alone[name],
        }
        rounds = [{way: seconds(work) for way, work in turns.items()} for _ in range(ROUNDS + 1)]
        rounds = rounds[1:]  # the first warms
        if process.is_main:
            one = N_SESSIONS / statistics.median(times["one"] for times in rounds)
            gains = {
                way: statistics.median(times["one"] / times[way] for times in rounds)
                for way in turns
            }
            print(
                f"{told}, {name:9s} one {one:6,.0f} sessions/s; two "
                f"{gains['two']:.2f} times it, items {gains['items']:.2f}, each "
                f"{2 * gains['each']:.2f}",
                flush=True,
            )


def main() -> None:
    """Measure each precision named, or both."""
    print(f"{machine_facts()}\npython benchmarks/processes.py {' '.join(sys.argv[1:])}", flush=True)
    params = load_params(Path(__file__).parents[1] / "params.yaml")
    compute = replace(params.compute, processes=2, threads=1, device="cpu")
    for precision in sys.argv[1:] or ["float32", "bfloat16"]:
        training = replace(params.training, precision=precision)
        run_processes(run, compute, replace(params, training=training))


if __name__ == "__main__":
    main()
