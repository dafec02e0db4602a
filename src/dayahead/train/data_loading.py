"""The batches that a window is fitted and evaluated with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dayahead.config.baselines import reads_times
from dayahead.config.model import ModelConfig
from dayahead.config.params import Params
from dayahead.core.columns import EVENT_TIME, ITEM_ID, PAST_PREFIX, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.model.rng import derived_seed
from dayahead.train.batches import LoadedBatches, Sessions, shuffled_rows, sorted_rows
from dayahead.train.event_types import EventTypes, Targets
from dayahead.train.streaming import Batches, StreamedBatches
from dayahead.windows.folder import Window, WindowFolder
from dayahead.windows.metadata import Statistics


def columns_read(model: ModelConfig, statistics: Statistics) -> list[str]:
    """Return the columns of a window file that a model reads."""
    of_features = (statistics.features[name].columns for name in model.features)
    times = [EVENT_TIME] if reads_times(model.architecture) else []
    own = [ITEM_ID, *times, *chain.from_iterable(of_features)]
    return own + [PAST_PREFIX + name for name in own if model.n_past_read]


@dataclass(frozen=True)
class Loader:
    """Batches of a run's windows, from memory or streamed from disk.

    Raises:
        ConfigError: the settings ask for past events or streams that the windows lack.
    """

    folder: WindowFolder
    params: Params

    def __post_init__(self) -> None:
        """Check the settings against the windows."""
        if self.is_streaming and self.params.evaluation.split == "all":
            raise ConfigError(
                "params.yaml: training.loader: stream reads a single file per window, but "
                "evaluation.split: all needs three; set evaluation.split to valid or test, or "
                "training.loader to memory"
            )
        longest = self.folder.statistics.sessions.past_max_length
        if self.past_length > longest:
            raise ConfigError(
                f"params.yaml: model.past_length: {self.past_length}, and the windows hold at most "
                f"{longest} events of a user before a session; set sessions.past_max_length in the "
                f"data set's file to {self.past_length} or more, or lower model.past_length"
            )

    @property
    def is_streaming(self) -> bool:
        """Whether windows are read batch by batch."""
        return self.params.training.loader == "stream"

    @property
    def past_length(self) -> int:
        """Past events read before a session."""
        return self.params.model.n_past_read

    @cached_property
    def columns(self) -> list[str]:
        """Columns of a window file that the model reads."""
        return columns_read(self.params.model, self.folder.statistics)

    @cached_property
    def types(self) -> EventTypes:
        """Which events are targets, and what each counts."""
        return EventTypes.of(self.folder, self.params.events)

    @cached_property
    def _read(self) -> list[str]:
        """Columns to read for `_sessions`."""
        return self.types.columns(self.columns, with_past=self.past_length > 0)

    def _sessions(self, table: pa.Table) -> Sessions:
        return self.types.mark(Sessions.from_table(table, self.past_length), self.columns)

    def fit_batches(self, windows: Sequence[Window], rank: Rank) -> list[Batches]:
        """Return epochs over the windows' train sessions, each in an order of its own.

        There are as many as `training.epochs` says, or as `steps_per_window` takes. The orders
        depend on the seed and the name of the newest window.
        """
        epochs = self._epochs(windows, rank)
        first = next(epochs)
        n_epochs, n_steps = self.params.training.epochs, self.params.training.steps_per_window
        if n_steps:
            n_epochs = -(-n_steps // max(1, first.n_steps))  # the window may be empty
        return [first, *islice(epochs, n_epochs - 1)]

    def _epochs(self, windows: Sequence[Window], rank: Rank) -> Iterator[Batches]:
        size, root = self.params.training.batch_size, self.params.training.seed
        # By the window's name, so that orders do not change when the log grows.
        seeds = (derived_seed(root, "order", windows[-1].name, number) for number in count())
        if self.is_streaming:
            paths = tuple(self.folder.path(window, "train") for window in windows)
            for seed in seeds:
                yield self._streamed(paths, size, rank, seed)
        tables = [self.folder.read(window, "train", self._read) for window in windows]
        sessions = self._sessions(pa.concat_tables(tables))
        for seed in seeds:
            yield LoadedBatches(sessions, shuffled_rows(sessions.lengths, size, seed), rank)

    def _streamed(
        self, paths: tuple[Path, ...], size: int, rank: Rank, seed: int | None = None
    ) -> StreamedBatches:
        columns = tuple(self._read)
        return StreamedBatches(paths, columns, size, rank, seed, sessions_of=self._sessions)

    def evaluation_batches(self, window: Window, rank: Rank) -> Batches:
        """Return one pass over the sessions that a window is evaluated on."""
        config = self.params.evaluation
        if self.is_streaming:
            path = self.folder.path(window, config.split)
            return self._streamed((path,), config.batch_size, rank)
        return self._sorted_batches(self.folder.read(window, config.split, self._read), rank)

    def _sorted_batches(self, table: pa.Table, rank: Rank) -> LoadedBatches:
        sessions = self._sessions(table)
        rows = sorted_rows(sessions.lengths, self.params.evaluation.batch_size)
        return LoadedBatches(sessions, rows, rank)

    def train_sessions(self, *windows: Window) -> LoadedBatches:
        """Return one pass over all train sessions of one window or several."""
        tables = [self.folder.read(window, "train", self._read) for window in windows]
        return self._sorted_batches(pa.concat_tables(tables), Rank(index=0, world_size=1))

    def evaluated_sessions(self, window: Window) -> Sessions:
        """Return the sessions that a window is evaluated on, in file order."""
        return self._sessions(self.folder.read(window, self.params.evaluation.split, self._read))

    def evaluation_sessions(self, window: Window) -> pa.Table:
        """Return a window's sessions in order: ids, and what `targets_of` needs of them."""
        columns = [SESSION_ID, *self.types.columns_of_targets(self.params.evaluation.positions)]
        return self.folder.read(window, self.params.evaluation.split, columns)

    def targets_of(self, sessions: pa.Table) -> Targets:
        """Return which items of each session are predicted."""
        return self.types.targets_in(sessions, self.params.evaluation.positions)

    def train_sample(self, window: Window, rank: Rank) -> tuple[NDArray[np.int64], Batches]:
        """Return the number of targets of sampled train sessions, and one pass over these."""
        n_sessions = self.folder.n_sessions(window, "train")
        seed = derived_seed(self.params.training.seed, "train sample", window.name)
        order = torch.randperm(n_sessions, generator=torch.Generator().manual_seed(seed))
        chosen = order[: self.params.evaluation.train_sessions].sort().values
        table = self.folder.take(window, "train", pa.array(chosen.numpy()), self._read)
        return self.targets_of(table).counts, self._sorted_batches(table, rank)
