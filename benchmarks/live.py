"""Seconds of a tick of memories that hold much: to count its clicks, and to be ready to score.

The memories are those of params.yaml. They hold a day's sessions of a shop with 167,000 items,
whose popularity follows Zipf's law; then come ticks of 10 seconds with 3,000 clicks each. Beside
it is the time of a copy of all cells of the table of pairs, which a table without levels would have
to write at each tick.

Command: python benchmarks/live.py [--sessions 200000] [--ticks 30]
"""

import argparse
import statistics
from typing import NamedTuple

import numpy as np

from dayahead.core.columns import DAY, ITEM_ID, N_RESERVED
from dayahead.core.ragged import offsets_of
from dayahead.memory.clicks import Clicks
from dayahead.memory.growth import Growth
from dayahead.memory.memories import Memories
from dayahead.memory.running import RunningSessions
from dayahead.memory.settings import MemorySettings
from measurement import print_header, seconds
from workload import default_params

N_ITEMS = 167_000
LENGTH = 4
"""Clicks of a session."""
TICK = 10_000_000
CLICKS_PER_TICK = 3_000


class Tick(NamedTuple):
    """Milliseconds of a tick."""

    count: float
    reader: float
    copy: float


def sessions_between(dice: np.random.Generator, n_sessions: int, start: int, end: int) -> Clicks:
    """Return sessions that start at any time in between, their clicks 5 seconds apart."""
    items = np.minimum(dice.zipf(1.2, n_sessions * LENGTH), N_ITEMS) + N_RESERVED - 1
    starts = np.sort(dice.integers(start, end, n_sessions))
    times = (starts[:, None] + np.arange(LENGTH) * 5_000_000).ravel()
    no_columns = np.zeros((len(items), 0), np.int64)
    return Clicks(items, times, no_columns, offsets_of(np.full(n_sessions, LENGTH)))


def measure(n_earlier: int, n_ticks: int) -> tuple[Memories, list[Tick]]:
    """Fill memories with earlier sessions, then let ticks pass."""
    dice = np.random.default_rng(1)
    settings = MemorySettings(
        config=default_params().memory,
        unit=DAY,
        columns=(),
        tick=TICK,
        gap=1_800_000_000,
        min_length=2,
        seed=1,
    )
    memories = Memories(settings)
    memories.grow({ITEM_ID: N_ITEMS})
    earlier = sessions_between(dice, n_earlier, 0, DAY)
    memories.add([earlier.take(earlier.order())], DAY)
    running = RunningSessions(settings)
    n_sessions = n_ticks * CLICKS_PER_TICK // LENGTH
    running.deliver(sessions_between(dice, n_sessions, DAY, DAY + n_ticks * TICK))
    ticks = []
    for number in range(1, n_ticks + 1):
        time = DAY + number * TICK

        def count(time: int = time) -> None:
            growth: Growth = running.advance(time)
            memories.count(growth, time)

        counted = seconds(count)
        ready = seconds(lambda: memories.reader(settings.config.n_candidates))
        cells = memories.pairs.table.cells
        copied = seconds(lambda cells=cells: [each.copy() for each in cells])  # type: ignore[misc]
        ticks.append(Tick(*(1000 * each for each in (counted, ready, copied))))
    return memories, ticks


def main() -> None:
    """Print medians of the ticks after the first ones, in which loops are compiled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=200_000, help="of the day before")
    parser.add_argument("--ticks", type=int, default=30)
    size = parser.parse_args()
    print_header()
    memories, ticks = measure(size.sessions, size.ticks)
    pairs, sessions = len(memories.pairs.table), len(memories.memories["sessions"].times)
    print(f"{pairs:,} pairs, {sessions:,} sessions, {CLICKS_PER_TICK:,} clicks a tick")
    for name, values in zip(Tick._fields, zip(*ticks[3:], strict=True), strict=True):
        print(f"{name:8} median {statistics.median(values):7.1f} ms, highest {max(values):7.1f} ms")


if __name__ == "__main__":
    main()
