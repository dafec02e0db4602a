"""Peak memory of one training step over a million items, in a process of its own.

GPT-2/clm at d 128, batch 512, 20 targets each; all their logits at once would take 38 GiB. The
peak is the largest resident set of the process since its start (VmHWM), so it includes libraries,
building the model and a first step that creates AdamW's state.

Command: python benchmarks/softmax_memory.py [loss] [...]
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from dayahead.core.columns import ITEM_ID
from dayahead.distributed.process import ALONE, Process
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.train.batches import LoadedBatches
from dayahead.train.trainers import GradientTrainer
from measurement import print_header, seconds
from workload import build_model, default_params, equal_sessions, gpt2_params

N_ITEMS = 1_000_000
BATCH = 512
LENGTH = 21
"""One event more than there are targets."""
LIMIT_GIB = 3.0
"""Of memory beyond weights and optimizer state."""


def build_trainer(
    loss_name: str, precision: str, process: Process, shard: Shard
) -> GradientTrainer:
    """Return a trainer with the settings of params.yaml but for sizes, loss and precision."""
    params = gpt2_params(default_params())
    params = replace(params, loss=replace(params.loss, name=loss_name))
    training = replace(params.training, precision=precision)
    trainer = GradientTrainer(build_model(params, LENGTH, shard), training, process)
    trainer.grow({ITEM_ID: N_ITEMS})
    if trainer.model.sampler:
        trainer.model.sampler.set_counts(torch.zeros(N_ITEMS, dtype=torch.int64))
    return trainer


def resident_memory(field: str) -> int:
    """Return the bytes of VmRSS (now) or VmHWM (the most so far)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(field)]
    return int(line.split()[1]) * 1024


def measure(
    loss_name: str,
    precision: str,
    process: Process = ALONE,
    shard: Shard = WHOLE,
    save: Callable[[GradientTrainer], object] = lambda _: None,
) -> dict[str, float]:
    """Return the GiB that this process uses, by what for, and the seconds of the step.

    The peak includes that of `save`, which is called after the step.
    """
    libraries = resident_memory("VmRSS")
    trainer = build_trainer(loss_name, precision, process, shard)

    def step(n_sessions: int) -> None:
        sessions = equal_sessions(n_sessions, LENGTH, N_ITEMS)
        batch = LoadedBatches(sessions, [torch.arange(n_sessions)], process.rank)
        trainer.fit("benchmark", [batch], lambda _: None)

    step(2)  # creates the optimizer's state
    duration = seconds(lambda: step(BATCH))
    save(trainer)
    state = [value for each in trainer.optimizer.state.values() for value in each.values()]
    sizes = {
        "peak": resident_memory("VmHWM"),
        "libraries": libraries,
        "weights": sum(parameter.nbytes for parameter in trainer.model.parameters()),
        "optimizer": sum(value.nbytes for value in state),
    }
    return {name: size / 2**30 for name, size in sizes.items()} | {"seconds": duration}


def main(losses: list[str]) -> None:
    """Measure each loss in both precisions and print the memory."""
    print_header()
    for loss_name in losses:
        for precision in ("float32", "bfloat16"):
            command = [sys.executable, __file__, "--measure", loss_name, precision]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            gib = json.loads(output.splitlines()[-1])
            beyond = gib["peak"] - gib["weights"] - gib["optimizer"]
            print(
                f"{loss_name:15s} {precision:8s} peak {gib['peak']:.2f} GiB: weights "
                f"{gib['weights']:.2f}, optimizer state {gib['optimizer']:.2f}, beyond "
                f"{beyond:.2f} ({'under' if beyond < LIMIT_GIB else 'NOT under'} {LIMIT_GIB:.0f}; "
                f"{gib['libraries']:.2f} of it libraries); the step took {gib['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
    else:
        main(sys.argv[1:] or ["softmax", "sampled_softmax"])
