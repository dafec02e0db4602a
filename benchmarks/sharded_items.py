"""Memory of each process where a million items are sharded (compute.shard_items).

The step of softmax_memory.py, on one process and on several of one thread each: weights, optimizer
state and peak resident memory, after the state has been written to a file too, of the main process
and of the other that uses most. The lower limit with w processes is a
w-th of the table and its optimizer state (1.43 GiB in all), and the hidden states of the global
batch, which every process holds (5 MiB).

Command: python benchmarks/sharded_items.py [processes] [...]
"""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dayahead.core.files import read_json, write_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from dayahead.model.tensor_files import send_rows, write_tensors
from dayahead.train.trainers import GradientTrainer, sharded_state
from measurement import print_header
from softmax_memory import measure
from workload import default_params

PROCESSES = (1, 2, 4)


def measure_process(process: Process, folder: Path) -> None:
    """Write what this process uses to a file."""

    def save(trainer: GradientTrainer) -> None:
        state = sharded_state(trainer.state(), trainer.model, process)
        if process.is_main:
            write_tensors(folder / "state.safetensors", state)
        else:
            send_rows(state)

    found = measure("softmax", "float32", process, Shard.create(process.rank), save)
    write_json(folder / f"{process.rank.index}.json", found)


def main(numbers: list[int]) -> None:
    """Measure with these numbers of processes and print the most that one of them uses."""
    print_header()
    print("processes  peak GiB  of others  weights  optimizer  libraries  seconds per step")
    for n_processes in numbers:
        with TemporaryDirectory() as folder:
            compute = replace(
                default_params().compute,
                processes=n_processes,
                threads=1,
                shard_items=n_processes > 1,
            )
            run_processes(measure_process, compute, Path(folder))
            main_one, *others = (
                read_json(Path(folder) / f"{rank}.json") for rank in range(n_processes)
            )
        most = {name: max(one[name] for one in (main_one, *others)) for name in main_one}
        other = max((one["peak"] for one in others), default=0.0)
        print(
            f"{n_processes:9d}  {main_one['peak']:8.2f}  {other:9.2f}  {most['weights']:7.2f}  "
            f"{most['optimizer']:9.2f}  {most['libraries']:9.2f}  {most['seconds']:16.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or list(PROCESSES))
