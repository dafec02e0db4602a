"""Cost of a step of the shipped network by the size of the catalogue: full and sampled softmax.

`loss.name: auto` changes from the one to the other where the full softmax takes a multiple of the
time (AUTO_ITEMS). Settings are those of params.yaml; sessions are of 2 to 20 events, five in the
mean; CPU time of one thread, the least of some rounds. The evaluation is of the network alone.

Command: python benchmarks/softmax_size.py [items] [...]
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from dayahead.config.model import SOFTMAXES
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from measurement import print_header
from workload import LONGEST, Pass, default_params, zipf_sessions

SIZES = (2_000, 5_000, 10_000, 20_000, 40_000, 60_000, 170_000)
STEPS, ROUNDS = 6, 3


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call, over all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(process: Process, params: Params, loss: str, n_items: int) -> tuple[float, float]:
    """Return the milliseconds of a step, and of the evaluation of a session."""
    changed = replace(params, model=params.model.of_network(), loss=replace(params.loss, name=loss))
    sessions = zipf_sessions(STEPS * params.training.batch_size, LONGEST, n_items)
    work = Pass(process, changed, sessions, n_items)
    if work.model.sampler is not None:
        counts = torch.bincount(sessions.columns[ITEM_ID] - N_RESERVED, minlength=n_items)
        work.model.sampler.set_counts(counts)
    work.fit()  # allocates the optimizer's state
    fit = min(cpu_seconds(work.fit) for _ in range(ROUNDS))
    return 1000 * fit / STEPS, 1000 * cpu_seconds(work.evaluate) / len(sessions)


def run(process: Process, params: Params, sizes: list[int]) -> None:
    """Print a row for each size."""
    for n_items in sizes:
        (full, evaluation), (sampled, _) = (
            measure(process, params, loss, n_items) for loss in SOFTMAXES
        )
        print(
            f"{n_items:9,} items: {full:6.1f} ms a step in full, {sampled:5.1f} ms sampled, ratio "
            f"{full / sampled:4.1f}; {evaluation:.2f} ms for the evaluation of a session",
            flush=True,
        )


if __name__ == "__main__":
    print_header()
    settings = default_params()
    settings = replace(settings, compute=replace(settings.compute, threads=1))
    run_processes(run, settings.compute, settings, [*map(int, sys.argv[1:])] or [*SIZES])
