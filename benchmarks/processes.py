"""Sessions per second of two processes of one thread against one of one thread.

Steps and sessions are those of throughput.py, GPT-2/clm at d 128, 2 layers, 4 heads: over 20,000
items by batches of 256 and of 1,024 sessions, and over 200,000 by 256. Both processes run all the
time; the variants take turns within one run, and figures are medians.

one          all the work in one process, while the other waits
two          batches split over both processes, gradients summed
sharded      items sharded too (compute.shard_items), so that their gradients are not exchanged
independent  both processes do all of the work at once without communication: the limit that the
             machine sets, less than 2 because two cores share memory, cache and power

A step of 256 needs 1,000 targets * 20,000 items * 128 * 2 for the scores and twice that for their
gradients, 15 GFLOP, and 3 for the backbone: 90 ms on a core that multiplies float32 at 200 GFLOP/s,
split over two processes. The work per parameter (3 M) is not split: AdamW, the norm, zeroing and
adding gradients, 9 ms, and the sum of 12 MB over both processes, 10 ms by gloo. It does not grow
with the batch. In bfloat16 products take a quarter of the time, and the
rest as long. Sharded items split the parameters too, and a step exchanges some 3 MB, but in a dozen
collectives, for each of which both processes wait for the slower.

Command: python benchmarks/processes.py [float32] [bfloat16]
"""

import statistics
import sys
from dataclasses import replace

import torch.distributed as dist

import measurement
from dayahead.config.params import Params
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from measurement import Work, print_header, time_in_turns
from throughput import ROUNDS, Size, build_work
from workload import SINGLE, default_params

SIZES = Size(256), Size(1024), Size(256, n_items=200_000, n_sessions=1024)


def seconds(work: Work | None) -> float:
    """Return the seconds until both processes have finished; None: this one only waits."""

    def synchronized() -> None:
        if work is not None:
            work()
        dist.barrier()

    dist.barrier()
    return measurement.seconds(synchronized)


def run(process: Process, params: Params) -> None:
    """Time the variants at each size and print the medians."""
    for size in SIZES:
        single = build_work(Process(SINGLE, process.device), params, size)
        split = build_work(process, params, size)
        sharded = build_work(process, params, size, Shard.create(process.rank))
        for name in single:
            variants = {
                "one": single[name] if process.is_main else None,
                "two": split[name],
                "sharded": sharded[name],
                "independent": single[name],
            }
            rounds = time_in_turns(variants, ROUNDS, seconds)
            if process.is_main:
                label = f"{params.training.precision}, {size.n_items:,} items, batch {size.batch}"
                print(f"{label}, {name:10s} {_summary(rounds, size)}", flush=True)


def _summary(rounds: list[dict[str, float]], size: Size) -> str:
    one = size.n_sessions / statistics.median(times["one"] for times in rounds)
    two, sharded, independent = (
        statistics.median(times["one"] / times[variant] for times in rounds)
        for variant in ("two", "sharded", "independent")
    )
    return (
        f"one {one:6,.0f} sessions/s; two {two:.2f} times that, sharded {sharded:.2f}, "
        f"independent {2 * independent:.2f}"
    )


def main() -> None:
    """Measure each precision named, or both."""
    print_header()
    params = default_params()
    compute = replace(params.compute, processes=2, threads=1)
    for precision in sys.argv[1:] or ["float32", "bfloat16"]:
        training = replace(params.training, precision=precision)
        run_processes(run, compute, replace(params, training=training))


if __name__ == "__main__":
    main()
