"""Which batches a window is fitted and measured with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice

import pyarrow as pa

from dayahead.columns import ITEM_ID, SESSION_ID
from dayahead.config.params import EvaluationConfig, TrainingConfig
from dayahead.data.batches import (
    Batches,
    MemoryBatches,
    Sessions,
    Share,
    measuring_plan,
    shuffled_plan,
)
from dayahead.data.streaming import StreamedBatches
from dayahead.data.windows import Window, WindowStore
from dayahead.errors import ConfigError
from dayahead.seeds import derived_seed


@dataclass(frozen=True)
class Loader:
    """Batches of the windows in a store, from memory or streamed from disk."""

    store: WindowStore
    features: tuple[str, ...]
    training: TrainingConfig
    evaluation: EvaluationConfig

    def __post_init__(self) -> None:
        """Refuse to stream what no single file holds, and features that are not there."""
        if self.streams and self.evaluation.split == "all":
            raise ConfigError(
                "params.yaml: training.loader: nvtabular streams one file per window, and "
                "evaluation.split: all is three; set evaluation.split to valid or test, or "
                "training.loader to memory"
            )
        known = self.store.statistics["features"]
        unknown = [name for name in self.features if name not in known]
        if unknown:
            raise ConfigError(
                f"params.yaml: model.features: {', '.join(unknown)} not among the data set's "
                f"({', '.join(known) or 'it has none'})"
            )

    @property
    def streams(self) -> bool:
        """Whether windows are read batch by batch."""
        return self.training.loader == "nvtabular"

    @cached_property
    def columns(self) -> list[str]:
        """Window-file columns the model reads."""
        features = self.store.statistics["features"]
        return [ITEM_ID, *(c for name in self.features for c in features[name]["columns"])]

    def fit_batches(self, windows: Sequence[Window], share: Share) -> list[Batches]:
        """Passes over the windows' train sessions, each in an order of its own.

        As many as there are epochs, or as `steps_per_window` take. The orders depend on the last
        window's name, at which the fit takes place.
        """
        passes = self._passes(windows, share)
        first = next(passes)
        n_passes, n_steps = self.training.epochs, self.training.steps_per_window
        if n_steps:
            n_passes = -(-n_steps // max(1, first.n_steps))  # many of nothing are nothing
        return [first, *islice(passes, n_passes - 1)]

    def _passes(self, windows: Sequence[Window], share: Share) -> Iterator[Batches]:
        size, root = self.training.batch_size, self.training.seed
        seeds = (derived_seed(root, "order", windows[-1].name, number) for number in count())
        if self.streams:
            paths = tuple(self.store.path(window, "train") for window in windows)
            for seed in seeds:
                yield StreamedBatches(paths, tuple(self.columns), size, share, seed=seed)
        tables = [self.store.read(window, "train", self.columns) for window in windows]
        sessions = Sessions.from_table(pa.concat_tables(tables))
        for seed in seeds:
            yield MemoryBatches(sessions, shuffled_plan(sessions.lengths, size, seed), share)

    def measure_batches(self, window: Window, share: Share) -> Batches:
        """One pass over the sessions that measure the window."""
        split, size = self.evaluation.split, self.evaluation.batch_size
        if self.streams:
            path = self.store.path(window, split)
            return StreamedBatches((path,), tuple(self.columns), size, share)
        sessions = Sessions.from_table(self.store.read(window, split, self.columns))
        return MemoryBatches(sessions, measuring_plan(sessions.lengths, size), share)

    def measured_ids(self, window: Window) -> pa.ChunkedArray:
        """Ids of the sessions that measure the window, in the order of its file."""
        return self.store.read(window, self.evaluation.split, [SESSION_ID])[SESSION_ID]
