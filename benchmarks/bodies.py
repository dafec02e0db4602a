"""Milliseconds of a training step of each body at the default size, on one thread.

A step is forward and backward of 128 sessions of 20 events at d 64, 2 layers, 4 heads, in float32:
of the body alone, and whole with embeddings, softmax over 5,000 items and the optimiser. Bodies
take turns, so that a drift of the machine's speed meets all alike; medians are told. `past` beside
a name: asked by clm; `both`: by mlm.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process, Rank
from dayahead.model.backbones import NAMED_TRANSFORMERS, WITHOUT_ATTENTION
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import Batches, MemoryBatches, Sessions, shuffled_rows
from dayahead.train.trainers import GradientTrainer

N_ITEMS = 5_000
BATCH = 128
LENGTH = 20
ROUNDS = 15
ALONE = Rank(index=0, world_size=1)
NAMES = (*NAMED_TRANSFORMERS, *WITHOUT_ATTENTION, "llama", "qwen3", "modernbert", "mamba")


def one_batch() -> Batches:
    """A pass of one step: every session is of full length."""
    items = torch.randint(N_ITEMS, (BATCH * LENGTH,)) + N_RESERVED
    sessions = Sessions({ITEM_ID: items}, torch.arange(0, BATCH * LENGTH + 1, LENGTH))
    return MemoryBatches(sessions, shuffled_rows(sessions.lengths, BATCH, seed=1), ALONE)


def body_step(model: NextItemModel, d_model: int) -> Callable[[], None]:
    """Forward and backward of the body."""
    inputs = torch.randn(BATCH, LENGTH, d_model, requires_grad=True)
    lengths = torch.full((BATCH,), LENGTH)

    def step() -> None:
        model.train()
        model.body(inputs, lengths).sum().backward()
        model.zero_grad(set_to_none=True)

    return step


def steps_of(name: str, task: str, params: Params, process: Process) -> list[Callable[[], object]]:
    """The body's step and the whole one."""
    config = replace(params.model, architecture=name)
    asked = replace(params.task, name=task)
    model = NextItemModel(
        config, asked, params.loss, categoricals={}, numbers={}, max_length=LENGTH, seed=1
    )
    model.grow({ITEM_ID: N_ITEMS})
    training = replace(params.training, batch_size=BATCH, epochs=1, precision="float32")
    learner, batch = GradientTrainer(model, training, process), one_batch()
    return [
        body_step(model, config.d_model),
        lambda: learner.fit("benchmark", [batch], lambda _: None),
    ]


def milliseconds(work: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def run(process: Process, params: Params, names: list[str]) -> None:
    """Take turns and print the medians."""
    steps: dict[str, list[Callable[[], object]]] = {}
    for name in names:
        for task, sight in [("clm", "past"), ("mlm", "both")]:
            try:
                steps[f"{name} {sight}"] = steps_of(name, task, params, process)
            except ConfigError as refusal:
                print(f"{name} {sight}: {str(refusal).split(': ')[2].split(';')[0]}")
    rounds = [
        {name: [milliseconds(step) for step in pair] for name, pair in steps.items()}
        for _ in range(ROUNDS + 2)
    ]
    print(f"{'ms a step':20s} {'body':>8s} {'whole':>8s}")
    for name in steps:
        body, whole = (statistics.median(r[name][k] for r in rounds[2:]) for k in (0, 1))
        print(f"{name:20s} {body:8.1f} {whole:8.1f}")


if __name__ == "__main__":
    settings = load_params(Path(__file__).parents[1] / "params.yaml")
    alone = replace(settings.compute, processes=1, threads=1, device="cpu")
    run_processes(run, alone, settings, sys.argv[1:] or list(NAMES))
