"""Peak memory of one training step over a million items, in a process of its own.

GPT-2/clm at d 128, batch 512, 20 targets each; all their logits at once would take 38 GiB. The
peak is the process's largest resident set since it began (VmHWM), so libraries, building the model
and a first step that makes AdamW's moments are in it; weights and moments are told apart. A loss
to measure may be named: `python benchmarks/softmax_memory.py sampled_softmax`.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from dayahead.config.params import load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import MemoryBatches, Sessions
from dayahead.train.trainers import GradientTrainer

N_ITEMS = 1_000_000
BATCH = 512
N_TARGETS = 20
DIM = 128
LIMIT_GIB = 3.0
"""Beyond weights and moments, as the project asks."""
ALONE = Process(Rank(index=0, world_size=1), torch.device("cpu"))


def batch_of(n_sessions: int, rank: Rank) -> MemoryBatches:
    """One batch of sessions of random items."""
    draw = torch.Generator().manual_seed(1)
    length = N_TARGETS + 1
    items = torch.randint(N_ITEMS, (n_sessions * length,), generator=draw) + N_RESERVED
    offsets = torch.arange(0, len(items) + 1, length)
    return MemoryBatches(Sessions({ITEM_ID: items}, offsets), [torch.arange(n_sessions)], rank)


def built_learner(
    loss_name: str, precision: str, process: Process, shard: Shard
) -> GradientTrainer:
    """The settings of the project but for the sizes, the loss and the precision."""
    params = load_params(Path(__file__).parents[1] / "params.yaml")
    model = NextItemModel(
        replace(params.model, architecture="gpt2", d_model=DIM, n_layer=2, n_head=4),
        replace(params.task, name="clm"),
        replace(params.loss, name=loss_name),
        categoricals={},
        numbers={},
        max_length=N_TARGETS + 1,
        seed=1,
        shard=shard,
    )
    learner = GradientTrainer(model, replace(params.training, precision=precision), process)
    learner.grow({ITEM_ID: N_ITEMS})
    return learner


def resident(field: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (the most so far)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(field)]
    return int(line.split()[1]) * 1024


def evaluated(
    loss_name: str, precision: str, process: Process = ALONE, shard: Shard = WHOLE
) -> dict[str, float]:
    """GiB and seconds of this process."""
    libraries = resident("VmRSS")
    learner = built_learner(loss_name, precision, process, shard)
    learner.fit("makes the moments", [batch_of(2, process.rank)], lambda _: None)
    start = time.perf_counter()
    learner.fit("is measured", [batch_of(BATCH, process.rank)], lambda _: None)
    seconds = time.perf_counter() - start
    moments = [value for state in learner.optimizer.state.values() for value in state.values()]
    sizes = {
        "peak": resident("VmHWM"),
        "libraries": libraries,
        "weights": sum(parameter.nbytes for parameter in learner.model.parameters()),
        "moments": sum(value.nbytes for value in moments),
    }
    return {name: size / 2**30 for name, size in sizes.items()} | {"seconds": seconds}


def main(losses: list[str]) -> None:
    """Measure each loss in both precisions and print what it takes."""
    for loss_name in losses:
        for precision in ("float32", "bfloat16"):
            command = [sys.executable, __file__, "--measure", loss_name, precision]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            gib = json.loads(output.splitlines()[-1])
            beyond = gib["peak"] - gib["weights"] - gib["moments"]
            print(
                f"{loss_name:15s} {precision:8s} peak {gib['peak']:.2f} GiB: weights "
                f"{gib['weights']:.2f}, moments {gib['moments']:.2f}, beyond {beyond:.2f} "
                f"({'under' if beyond < LIMIT_GIB else 'NOT under'} {LIMIT_GIB:.0f}; "
                f"{gib['libraries']:.2f} of it libraries); the step took {gib['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(evaluated(*sys.argv[2:])))
    else:
        main(sys.argv[1:] or ["softmax", "sampled_softmax"])
