"""Memory of each process where a million items are shared out (compute.shard_items).

The step of softmax_memory.py, on one process and on more of one thread each: weights, moments and
peak resident memory of the process that takes most. With w processes the floor is a w-th of table
and moments (1.43 GiB in all), and the states of the global batch, which every process has (5 MiB).
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dayahead.config.params import load_params
from dayahead.core.files import write_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from softmax_memory import evaluated

PROCESSES = (1, 2, 4)


def on_process(process: Process, folder: Path) -> None:
    """Write down what this process takes."""
    shard = Shard.create(process.rank)
    found = evaluated("softmax", "float32", process, shard)
    write_json(folder / f"{process.rank.index}.json", found)


def main(numbers: list[int]) -> None:
    """Measure with so many processes and print the most that one of them takes."""
    compute = load_params(Path(__file__).parents[1] / "params.yaml").compute
    print("processes  peak GiB  weights  moments  libraries  seconds a step")
    for n_processes in numbers:
        with TemporaryDirectory() as folder:
            asked = replace(
                compute, processes=n_processes, threads=1, device="cpu", shard_items=n_processes > 1
            )
            run_processes(on_process, asked, Path(folder))
            each = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
        most = {name: max(one[name] for one in each) for name in each[0]}
        print(
            f"{n_processes:9d}  {most['peak']:8.2f}  {most['weights']:7.2f}  "
            f"{most['moments']:7.2f}  {most['libraries']:9.2f}  {most['seconds']:14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or list(PROCESSES))
