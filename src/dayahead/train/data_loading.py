"""Which batches a window is fitted and measured with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice

import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow.dataset import dataset

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, PAST_PREFIX, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.core.seeds import derived_seed
from dayahead.distributed.process import Rank
from dayahead.train.batches import Batches, MemoryBatches, Sessions, measuring_plan, shuffled_plan
from dayahead.train.evaluate import Targets
from dayahead.train.streaming import StreamedBatches
from dayahead.windows.folder import Window, WindowFolder


@dataclass(frozen=True)
class Loader:
    """Batches of the windows in a store, from memory or streamed from disk."""

    store: WindowFolder
    params: Params

    def __post_init__(self) -> None:
        """Refuse to stream what no single file holds, and what the windows do not hold."""
        if self.streams and self.params.evaluation.split == "all":
            raise ConfigError(
                "params.yaml: training.loader: nvtabular streams one file per window, and "
                "evaluation.split: all is three; set evaluation.split to valid or test, or "
                "training.loader to memory"
            )
        known = self.store.statistics.features
        unknown = [name for name in self.params.model.features if name not in known]
        if unknown:
            raise ConfigError(
                f"params.yaml: model.features: {', '.join(unknown)} not among the data set's "
                f"({', '.join(known) or 'it has none'})"
            )
        if self.past_length:
            self._check_past()

    def _check_past(self) -> None:
        longest = self.store.statistics.sessions.past_max_length
        if self.past_length > longest:
            raise ConfigError(
                f"params.yaml: model.past_length: {self.past_length}, and the windows hold at most "
                f"{longest} events of a user before a session; set sessions.past_max_length in the "
                f"data set's file to {self.past_length} or more, or lower model.past_length"
            )
        if self.streams:
            # merlin-dataloader fails on a buffer in which nobody has a past, as in a first window.
            raise ConfigError(
                "params.yaml: training.loader: nvtabular does not stream past events; set "
                "training.loader to memory, or model.past_length to 0"
            )

    @property
    def streams(self) -> bool:
        """Whether windows are read batch by batch."""
        return self.params.training.loader == "nvtabular"

    @property
    def past_length(self) -> int:
        """Past events read before a session; what counts reads none."""
        return 0 if self.params.model.is_counted else self.params.model.past_length

    @cached_property
    def columns(self) -> list[str]:
        """Window-file columns the model reads."""
        features = self.store.statistics.features
        own = [
            ITEM_ID,
            *(c for name in self.params.model.features for c in features[name].columns),
        ]
        return own + [PAST_PREFIX + name for name in own if self.past_length]

    def fit_batches(self, windows: Sequence[Window], rank: Rank) -> list[Batches]:
        """Passes over the windows' train sessions, each in an order of its own.

        As many as there are epochs, or as `steps_per_window` take. The orders depend on the last
        window's name, at which the fit takes place.
        """
        passes = self._passes(windows, rank)
        first = next(passes)
        n_passes, n_steps = self.params.training.epochs, self.params.training.steps_per_window
        if n_steps:
            n_passes = -(-n_steps // max(1, first.n_steps))  # many of nothing are nothing
        return [first, *islice(passes, n_passes - 1)]

    def _passes(self, windows: Sequence[Window], rank: Rank) -> Iterator[Batches]:
        size, root = self.params.training.batch_size, self.params.training.seed
        seeds = (derived_seed(root, "order", windows[-1].name, number) for number in count())
        if self.streams:
            paths = tuple(self.store.path(window, "train") for window in windows)
            for seed in seeds:
                yield StreamedBatches(paths, tuple(self.columns), size, rank, seed=seed)
        tables = [self.store.read(window, "train", self.columns) for window in windows]
        sessions = Sessions.from_table(pa.concat_tables(tables), self.past_length)
        for seed in seeds:
            yield MemoryBatches(sessions, shuffled_plan(sessions.lengths, size, seed), rank)

    def measure_batches(self, window: Window, rank: Rank) -> Batches:
        """One pass over the sessions that measure the window."""
        split, size = self.params.evaluation.split, self.params.evaluation.batch_size
        if self.streams:
            path = self.store.path(window, split)
            return StreamedBatches((path,), tuple(self.columns), size, rank)
        table = self.store.read(window, split, self.columns)
        sessions = Sessions.from_table(table, self.past_length)
        return MemoryBatches(sessions, measuring_plan(sessions.lengths, size), rank)

    def measured_sessions(self, window: Window) -> pa.Table:
        """The sessions that measure the window, in the order of its file: ids, and what to ask."""
        return self.store.read(window, self.params.evaluation.split, self._asking)

    def asked(self, sessions: pa.Table) -> Targets:
        """Which items of some sessions are targets."""
        if self.params.evaluation.positions == "last":
            return Targets.last(len(sessions))
        return Targets.all(pc.list_value_length(sessions[ITEM_ID]).to_numpy())

    def train_sample(self, window: Window, rank: Rank) -> tuple[Targets, Batches]:
        """Targets of some train sessions drawn by the seed, and one pass over them."""
        n_sessions = self.store.n_sessions(window, "train")
        draw = torch.Generator().manual_seed(
            derived_seed(self.params.training.seed, "train sample", window.name)
        )
        chosen = torch.randperm(n_sessions, generator=draw)[: self.params.evaluation.train_sessions]
        # Unlike a table's, this `take` holds no more than it takes, however large the file is.
        file = dataset(self.store.path(window, "train"))
        table = file.take(pa.array(chosen.sort().values.numpy()), columns=self.columns)
        sessions = Sessions.from_table(table, self.past_length)
        plan = measuring_plan(sessions.lengths, self.params.evaluation.batch_size)
        return self.asked(table), MemoryBatches(sessions, plan, rank)

    @property
    def _asking(self) -> list[str]:
        """Columns that say whose targets there are and how many."""
        return [SESSION_ID] if self.params.evaluation.positions == "last" else [SESSION_ID, ITEM_ID]
