"""Settings of processes and devices, of the machine and of profiles of its work.

Sections `compute`, `machine` and `profile`.
"""

from typing import Literal

from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Auto, Count, CountOrZero, Size


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ComputeConfig:
    """Processes, threads and devices."""

    processes: Size | Auto
    """auto: one per GPU, one on the CPU, or as many as a launcher started."""
    threads: Size | Auto
    """Threads per process, never inherited; auto: the cores divided by the processes."""
    device: Literal["auto", "cpu", "cuda"]
    """Of training and evaluation; auto: cuda where there is a GPU."""
    shard_items: bool
    """Whether the item embeddings, their bias and their optimizer state are sharded over the
    processes, for catalogues too large for one; results and checkpoints are the same. Not with the
    network of memory, which is whole on every process."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MachineConfig:
    """What suits the machine at hand.

    It is no parameter of a study: no stage runs again for it, and neither MLflow's parameters nor
    cache keys hold it (`strict` decides whether fits of other machines are reused).
    """

    workers: Size | Auto
    """Dask workers of `preprocess`; auto: one per two cores, and none for a log that one task
    holds. None are started where DASK_SCHEDULER_ADDRESS names a scheduler that has workers."""
    memory_limit: str
    """Memory of each of them, as Dask writes it (4GiB)."""
    keep_fits: Count | Literal["all"]
    """How many of the newest fits of a study the cache keeps, each as large as three models. From 2
    on older ones of a carried model stay too, about log2(windows) in all (9 after 381 windows), so
    that an earlier `window.last` refits fewer than twice as many windows as it goes back. all: then
    other settings of `evaluation` need no fit either."""
    max_restarts: CountOrZero
    """How often several processes are started again, from the last fit kept, when one dies."""
    strict: bool
    """Whether fits from another kind of machine, or from other numbers of processes and threads,
    are left alone. They agree with this machine's, but not to the last bit."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ProfileConfig:
    """One fit whose time and memory are recorded in results/profile/.

    No result and no cache key depends on it.
    """

    window: str | None
    """Window whose fit, and whose model's evaluation on the next window, are profiled: both are
    done again where they are cached. null: none."""
    first_step: CountOrZero
    """The first step that a trace holds, from 0 on. Steps of the network's fit, of that of memory's
    head and of the evaluation are counted and traced separately."""
    steps: Size
    """How many steps a trace holds."""
