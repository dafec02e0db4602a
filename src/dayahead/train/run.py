"""One process's state while the protocol runs over the windows."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from dayahead.config.params import Params
from dayahead.core.columns import FIRST_TIME, INDEX, ITEM_ID, N_RESERVED, SESSION_ID, VALUE
from dayahead.core.project import cache_root
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.baselines import CountingModel
from dayahead.model.checkpoint import (
    ModelConfigFile,
    StoredModel,
    build_model,
    vocabulary_columns,
    weights_of,
)
from dayahead.model.embeddings import PretrainedRows, read_item_vectors
from dayahead.model.next_item import NextItemModel
from dayahead.train.attention import attention_table, check_has_attention
from dayahead.train.batches import Batches
from dayahead.train.data_loading import Loader
from dayahead.train.evaluate import measure, window_ranks
from dayahead.train.predictions import prediction_table
from dayahead.train.results import EvaluatedWindow, Timing
from dayahead.train.sharded_state import collected, dealt
from dayahead.train.trainers import CountTrainer, GradientTrainer, Trainer
from dayahead.windows.folder import Window, WindowFolder

WindowRecord = Mapping[str, Any]
"""Of a measured window: `step` (its position in the log), `timestamp_ms` (its start) and `metrics`
by name, None where there is nothing to tell."""


def _unheard(record: WindowRecord) -> None:
    """Be told of a window; at module level, so that it pickles."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that a run of the protocol depends on, and where its files lie."""

    params: Params
    windows: Path
    results: Path
    models: Path
    on_window: Callable[[WindowRecord], None] = _unheard
    """Told of every measured window, in the main process; it must pickle to get there."""
    cache: Path = field(default_factory=cache_root)
    """Where finished fits and measurements are kept, so that no run repeats them."""


@dataclass(frozen=True)
class Fit:
    """What fitting came to."""

    window: Window
    """At which the model stands now."""
    loss: float | None
    """Mean over targets and passes; None for models that count."""
    n_sessions: int
    """Over all passes."""
    seconds: float


class Run:
    """The model, its learner and what it has seen so far."""

    def __init__(
        self, study: Study, process: Process, first: Window, *, shard: Shard = WHOLE
    ) -> None:
        self.study = study
        self.params = study.params
        self.process = process
        self.shard = shard
        self.store = WindowFolder(study.windows)
        self.loader = Loader(self.store, self.params)
        self.first_sizes = self.sizes_at(first)
        self.model, self.learner = self._built()
        if self.params.evaluation.attention_of:
            check_has_attention(self.model)
        self.seen = np.zeros(0, np.int32)

    def _built(self) -> tuple[NextItemModel | CountingModel, Trainer]:
        """A fresh model, the same one every time, and what fits it."""
        params = self.params
        model = build_model(
            params.model,
            params.task,
            params.loss,
            self.store.statistics,
            self.first_sizes,
            params.training.seed,
            shard=self.shard,
        )
        if isinstance(model, CountingModel):
            return model, CountTrainer(model)
        if self.item_vectors:
            model.inputs.items.pretrained = self.item_vectors
        return model, GradientTrainer(model, params.training, self.process)

    @cached_property
    def item_vectors(self) -> PretrainedRows | None:
        """Vectors that items start from, where the settings name a file of them."""
        config = self.params.model
        if config.pretrained_items is None:
            return None
        vocabulary = self.store.vocabulary(ITEM_ID)
        return read_item_vectors(Path(config.pretrained_items), vocabulary, config.item_dim)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns whose vocabularies the model holds rows of."""
        return vocabulary_columns(self.params.model, self.store.statistics)

    def sizes_at(self, window: Window) -> dict[str, int]:
        """Values held of each vocabulary at a window."""
        if self.params.model.catalogue == "full":
            return {column: len(self.store.vocabulary(column)) for column in self.columns}
        return {column: self.store.n_known(column, window) for column in self.columns}

    @property
    def candidates(self) -> NDArray[np.int32]:
        """Catalogue indices ranked over, ascending."""
        if self.params.evaluation.candidates == "seen":
            return self.seen
        return np.arange(N_RESERVED, N_RESERVED + self.model.n_items, dtype=np.int32)

    def see(self, window: Window) -> None:
        """Take the items of a window's train sessions among the candidates."""
        self.seen = np.union1d(self.seen, self.store.items_in(window, "train"))

    def fit(self, windows: Sequence[Window]) -> Fit:
        """Fit on the train sessions of these windows together, at the last of them."""
        start = time.perf_counter()
        window = windows[-1]
        if self.params.training.starts_afresh:
            self.model, self.learner = self._built()
        self.learner.grow(self.sizes_at(window))
        passes = self.loader.fit_batches(windows, self.learner.fit_rank)
        n_sessions = self._n_sessions(windows, passes)
        with tqdm(
            total=n_sessions,
            desc=f"fit {window.name}",
            unit=" sessions",
            leave=False,
            disable=None if self.process.is_main else True,  # None: off where there is no terminal
        ) as bar:
            loss = self.learner.fit(window.name, passes, bar.update)
        return Fit(window, loss, n_sessions, time.perf_counter() - start)

    def _n_sessions(self, windows: Sequence[Window], passes: list[Batches]) -> int:
        """Sessions that a fit goes through; only the last batch of a pass is short."""
        of_a_pass = sum(self.store.n_sessions(window, "train") for window in windows)
        n_whole, rest = divmod(self.learner.n_steps(passes), max(1, passes[0].n_steps))
        return n_whole * of_a_pass + rest * self.params.training.batch_size

    def state(self) -> dict[str, Tensor]:
        """The learner's state, whole in the main process; every process calls this."""
        if self.shard.is_whole and not self.process.is_main:
            return {}
        return collected(self.learner.state(), self.model, self.process)

    def restore(self, window: Window, state: Mapping[str, Tensor] | None) -> None:
        """Stand where another run stood after its fit at `window`, by the main process's state."""
        self.model, self.learner = self._built()
        own = dealt(state, self.model, self.process)
        self.learner.restore(self.sizes_at(window), own)

    def measure(self, window: Window, fit: Fit) -> EvaluatedWindow:
        """Measure on the window after the one fitted last."""
        evaluation = self.params.evaluation
        train_ranks = self._train_ranks(fit.window)
        start = time.perf_counter()
        sessions = self.loader.measured_sessions(window)
        asked = self.loader.asked(sessions)
        batches = self.loader.measure_batches(window, self.process.rank)
        n_best = evaluation.predictions
        found = measure(self.model, batches, asked, self.candidates, self.process, n_best)
        ranks = window_ranks(sessions[SESSION_ID], asked, found, evaluation.positions)
        seconds = time.perf_counter() - start
        timing = Timing(
            window=window.name,
            fit_seconds=fit.seconds,
            fit_sessions_per_second=fit.n_sessions / fit.seconds,
            measure_seconds=seconds,
            measure_sessions_per_second=ranks.n_sessions / seconds,
        )
        raw = self.store.vocabulary(ITEM_ID)[VALUE]
        predictions = prediction_table(ranks, found, self.candidates, raw) if n_best else None
        attention = self._attention(window, sessions[SESSION_ID])
        return EvaluatedWindow(
            window.name, ranks, train_ranks, fit.loss, timing, predictions, attention
        )

    def _attention(self, window: Window, ids: pa.ChunkedArray) -> pa.Table | None:
        """Attention weights of a window's chosen sessions, which the main process writes.

        The others help to look items up where these are shared out.
        """
        evaluation = self.params.evaluation
        is_chosen = pc.is_in(ids, pa.array(evaluation.attention_of, pa.string()))
        is_wanted = pc.any(is_chosen).as_py() and (self.process.is_main or not self.shard.is_whole)
        if not is_wanted or isinstance(self.model, CountingModel):
            return None
        columns = [SESSION_ID, *self.loader.columns]
        table = self.store.read(window, evaluation.split, columns).filter(is_chosen)
        return attention_table(self.model, table, self.loader.past_length, self.process.device)

    def _train_ranks(self, window: Window) -> NDArray[np.int32]:
        """Ranks of sessions just fitted; none where none are asked for, or there were none."""
        if not self.params.evaluation.train_sessions:
            return np.zeros(0, np.int32)
        asked, batches = self.loader.train_sample(window, self.process.rank)
        return measure(self.model, batches, asked, self.candidates, self.process).ranks

    def whole_weights(self) -> dict[str, Tensor]:
        """The model's weights, whole in the main process; every process calls this."""
        return collected(weights_of(self.model), self.model, self.process)

    def stored_model(self, window: Window) -> StoredModel:
        """Return the model as it stands after fitting `window`."""
        params, sizes, statistics = self.params, self.sizes_at(window), self.store.statistics
        features = {name: statistics["features"][name] for name in params.model.features}
        card = ModelConfigFile(
            dataset=params.dataset,
            window=window.name,
            model=params.model,
            task=params.task,
            loss=params.loss,
            seed=params.training.seed,
            sizes=sizes,
            first_sizes=self.first_sizes,
            statistics=statistics | {"features": features},
        )
        held = {
            column: self.store.vocabulary(column)
            .slice(0, size)
            .select([INDEX, VALUE, FIRST_TIME])
            .combine_chunks()
            for column, size in sizes.items()
        }
        return StoredModel(card, self.model, self.candidates, held)
