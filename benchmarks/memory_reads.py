"""CPU milliseconds in which the memories of a large shop read one prefix: candidates and features.

The memories are those of params.yaml. They have counted two days of 297,000 sessions of REES46's
shape: 166,794 items by Zipf's law, 4.6 clicks, a quarter of them on the item before. The digest is
of all that is read, so that two commits can be compared.

Command: python benchmarks/memory_reads.py [--sessions 297000]
"""

import argparse
import hashlib
import statistics
import time
from itertools import chain

import numpy as np

from dayahead.core.columns import DAY, ITEM_ID, N_RESERVED
from dayahead.core.ragged import offsets_of
from dayahead.memory.awaited import parts
from dayahead.memory.clicks import Clicks
from dayahead.memory.memories import Memories
from dayahead.memory.settings import MemorySettings
from measurement import print_header
from workload import default_params

N_ITEMS, MAX_LENGTH, REPEATS = 166_794, 20, 0.25
N_READ, N_ROUNDS = 4_000, 5


def day_of_sessions(day: int, n_sessions: int) -> Clicks:
    """Return a day's sessions in order of time, their clicks 20 seconds apart."""
    dice = np.random.default_rng(day)
    lengths = np.clip(1 + dice.lognormal(1.15, 0.75, n_sessions).astype(np.int64), 2, MAX_LENGTH)
    offsets = offsets_of(lengths)
    shares = np.cumsum(1 / np.arange(1, N_ITEMS + 1))
    items = np.searchsorted(shares / shares[-1], dice.random(offsets[-1])) + N_RESERVED
    is_own = dice.random(len(items)) >= REPEATS
    is_own[offsets[:-1]] = True
    items = items[np.maximum.accumulate(np.where(is_own, np.arange(len(items)), 0))]
    starts = day * DAY + np.sort(dice.integers(0, DAY * 9 // 10, n_sessions))
    steps = np.arange(len(items)) - offsets[:-1].repeat(lengths)
    times = starts.repeat(lengths) + steps * 20_000_000
    sessions = Clicks(items, times, np.zeros((len(items), 0), np.int64), offsets)
    return sessions.take(sessions.order())


def filled(n_sessions: int) -> Memories:
    """Return memories that have counted two days."""
    settings = MemorySettings(
        config=default_params().memory,
        unit=DAY,
        columns=(),
        tick=0,
        gap=1_800_000_000,
        min_length=2,
        seed=1,
    )
    memories = Memories(settings)
    memories.grow({ITEM_ID: N_ITEMS})
    for day in range(2):
        memories.add([day_of_sessions(day, n_sessions)], (day + 1) * DAY)
    return memories


def main() -> None:
    """Print medians of several rounds; loops are compiled before the first one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=297_000)
    print_header()
    memories = filled(parser.parse_args().sessions)
    n_candidates = memories.settings.config.n_candidates
    read, prefixes = memories.reader(n_candidates), day_of_sessions(2, N_READ)
    batches = [prefixes.take(part) for part in parts(N_READ, n_candidates)]
    digest, times = hashlib.sha256(), []
    for array in chain.from_iterable(read(batch) for batch in batches):
        digest.update(array.tobytes())
    for _ in range(N_ROUNDS):
        start = time.process_time()
        for batch in batches:
            read(batch)
        times.append(time.process_time() - start)
    print(f"{len(memories.pairs.table):,} pairs; sha256 of what is read {digest.hexdigest()[:16]}")
    print(f"{1000 * statistics.median(times) / N_READ:.3f} ms per prefix")


if __name__ == "__main__":
    main()
