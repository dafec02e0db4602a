"""Milliseconds of a training step of each backbone at the default size, on one thread.

A step is forward and backward of 128 sessions of 20 events at d 64, 2 layers, 4 heads, in float32:
of the backbone alone, and of the whole model with embeddings, softmax over 5,000 items and the
optimizer. Figures are medians. `causal` beside a name is what clm trains, `bidirectional` what mlm
trains.

Command: python benchmarks/backbones.py [name] [...]
"""

import statistics
import sys
from dataclasses import replace

import torch

from dayahead.config.baselines import NAMED_TRANSFORMERS, OWN_NETWORKS
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import ConfigError
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import LoadedBatches, shuffled_rows
from dayahead.train.trainers import GradientTrainer
from measurement import Work, print_header, seconds, time_in_turns
from workload import SINGLE, build_model, default_params, equal_sessions

N_ITEMS = 5_000
BATCH = 128
LENGTH = 20
ROUNDS = 15
NAMES = (*NAMED_TRANSFORMERS, *OWN_NETWORKS, "llama", "qwen3", "modernbert", "mamba")


def backbone_step(model: NextItemModel) -> Work:
    """Return forward and backward of the backbone alone."""
    inputs = torch.randn(BATCH, LENGTH, model.config.d_model, requires_grad=True)
    lengths = torch.full((BATCH,), LENGTH)

    def step() -> None:
        model.train()
        model.body(inputs, lengths).sum().backward()
        model.zero_grad(set_to_none=True)

    return step


def build_steps(params: Params, process: Process) -> dict[str, Work]:
    """Return a step of the backbone alone, and one of the whole model."""
    model = build_model(params, LENGTH)
    model.grow({ITEM_ID: N_ITEMS})
    training = replace(params.training, batch_size=BATCH, epochs=1, precision="float32")
    trainer = GradientTrainer(model, training, process)
    sessions = equal_sessions(BATCH, LENGTH, N_ITEMS)
    batch = LoadedBatches(sessions, shuffled_rows(sessions.lengths, BATCH, seed=1), SINGLE)
    return {
        "backbone": backbone_step(model),
        "whole": lambda: trainer.fit("benchmark", [batch], lambda _: None),
    }


def run(process: Process, params: Params, names: list[str]) -> None:
    """Time the backbones in turns and print the medians."""
    steps: dict[tuple[str, str], Work] = {}
    for name in names:
        for task, attention in [("clm", "causal"), ("mlm", "bidirectional")]:
            row = f"{name} {attention}"
            model, task_config = replace(params.model, architecture=name), params.task
            changed = replace(params, model=model, task=replace(task_config, name=task))
            try:
                built = build_steps(changed, process)
            except ConfigError as error:
                print(f"{row}: {str(error).split(': ')[2].split(';')[0]}")
            else:
                steps |= {(row, part): step for part, step in built.items()}
    rounds = time_in_turns(steps, ROUNDS, seconds)
    print(f"{'ms per step':26s} {'backbone':>8s} {'whole':>8s}")
    for row in dict.fromkeys(row for row, _ in steps):
        backbone, whole = (
            1000 * statistics.median(times[row, part] for times in rounds)
            for part in ("backbone", "whole")
        )
        print(f"{row:26s} {backbone:8.1f} {whole:8.1f}")


if __name__ == "__main__":
    print_header()
    settings = default_params()
    run_processes(run, replace(settings.compute, threads=1), settings, sys.argv[1:] or list(NAMES))
