"""One process's model, trainer and data while the protocol goes over the windows."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, NonNegativeInt
from torch import Tensor
from tqdm import tqdm

from dayahead.core.columns import (
    FIRST_TIME,
    INDEX,
    ITEM_ID,
    N_RESERVED,
    SESSION_ID,
    VALUE,
)
from dayahead.core.errors import ModelFileError, lack_of_memory
from dayahead.core.indices import union
from dayahead.core.phases import in_phase, phase
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.building import build_model
from dayahead.model.checkpoint import (
    READ_ERRORS,
    ModelConfigFile,
    StoredModel,
    save_model,
    weights_of,
)
from dayahead.model.model import Model
from dayahead.model.stored_items import StoredItems
from dayahead.model.tensor_files import AnyTensor, StoredTensor, send_rows
from dayahead.outputs.tables import write_evidence
from dayahead.train.catalogue import Catalogue
from dayahead.train.data_loading import Loader
from dayahead.train.evaluate import Offered, RankedTargets, evaluate
from dayahead.train.evaluated_lists import ListEvaluation
from dayahead.train.list_counts import Best
from dayahead.train.live_evaluation import Request, evaluate_live
from dayahead.train.results import (
    EVIDENCE,
    EvaluatedWindow,
    Timing,
    attention_table,
    check_attention,
    prediction_table,
)
from dayahead.train.sharded_state import scatter_state, sharded_state
from dayahead.train.streaming import Batches
from dayahead.train.study import Study
from dayahead.train.trainer_registry import Trainer, trainer_of
from dayahead.windows.folder import Window, WindowFolder
from dayahead.windows.items import ItemTable

UNFIT_STATE = (*READ_ERRORS, AttributeError, IndexError, ModelFileError)
"""Errors raised by a trainer that is given the state of another model."""


@dataclass(frozen=True)
class Fit:
    """Result of fitting."""

    window: Window
    """The newest window fitted on."""
    loss: FiniteFloat | None
    """Mean over targets and epochs; None for baselines."""
    n_sessions: NonNegativeInt
    """Number of sessions, over all epochs."""
    seconds: Annotated[float, Field(gt=0)]
    state_bytes: NonNegativeInt = 0
    """Bytes of the state that the next fit starts from; set once the state is taken."""


class Run:
    """The model, its trainer and the candidates so far; `first` is the first window fitted on.

    With `compute.shard_items` all processes create their runs together.
    """

    def __init__(self, study: Study, process: Process, first: Window) -> None:
        self.study = study
        self.params = study.params
        self.process = process
        self.shard = Shard.create(process.rank) if study.params.compute.shard_items else WHOLE
        self.folder = WindowFolder(study.windows)
        self.loader = Loader(self.folder, self.params)
        self.catalogue = Catalogue(self.folder, self.params.model)
        self.first_sizes = self.catalogue.sizes_at(first)
        self.model, self.trainer = self._build()
        if self.params.evaluation.attention_of:
            check_attention(self.model.network)
        self.lists = ListEvaluation(self.folder, self.params.evaluation, first, process)
        self.items_table: ItemTable | None = None
        """What the data set says of items after the last fit."""
        self.seen = np.zeros(0, np.int32)
        """Items of train sessions so far, ascending."""

    def _build(self) -> tuple[Model, Trainer]:
        """Return a fresh model, the same every time, and its trainer."""
        params = self.params
        model = build_model(
            params,
            self.folder.statistics,
            self.first_sizes,
            params.training.seed,
            shard=self.shard,
        )
        if model.network is not None:
            model.network.inputs.items.pretrained = self.catalogue.item_vectors
        return model, trainer_of(model, params.training, self.folder.ends, self.process)

    @property
    def candidates(self) -> NDArray[np.int32]:
        """Catalogue indices that may be recommended, ascending, whether available or not."""
        if self.params.evaluation.candidates == "seen":
            return self.seen
        return np.arange(N_RESERVED, N_RESERVED + self.model.n_items, dtype=np.int32)

    @in_phase("data")
    def add_candidates(self, window: Window) -> None:
        """Add the items of a window's train sessions to the candidates."""
        self.seen = union(self.seen, self.folder.items_in(window, "train"))

    @in_phase("fit")
    def fit(self, windows: Sequence[Window]) -> Fit:
        """Fit on the train sessions of these windows together."""
        start = time.perf_counter()
        window = windows[-1]
        if self.params.training.starts_afresh:
            self.model, self.trainer = self._build()
            if window.position:  # grow in two steps, so that only this window's items are new
                self.model.grow(self.catalogue.sizes_at(self.folder.before(window)))
        self._know_items(self.folder.before(window))
        with phase("grow"):
            self.trainer.grow(self.catalogue.sizes_at(window))
        with phase("data"):
            self._count_targets(windows)
            epochs = self.loader.fit_batches(windows, self.trainer.rank)
            n_sessions = self._n_sessions(windows, epochs)
        with tqdm(
            total=n_sessions,
            desc=f"fit {window.name}",
            unit=" sessions",
            leave=False,
            disable=None if self.process.is_main else True,  # None: off where there is no terminal
        ) as bar:
            loss = self.trainer.fit(window.name, epochs, bar.update)
        self._know_items(window)
        seconds = time.perf_counter() - start
        return Fit(window, loss, n_sessions, seconds)

    def _know_items(self, window: Window) -> None:
        """Let the model read what the items table says after a window."""
        with_new = self.params.evaluation.ranks_new_items
        self.items_table = self.folder.items_at(window)
        self.model.know_items(self.items_table, with_new=with_new)

    def _count_targets(self, windows: Sequence[Window]) -> None:
        """Set how often each item is a target in these windows, for the sampler of negatives."""
        network = self.model.network
        if network is None or network.sampler is None or not network.loss.is_sampled:
            return
        start, end = network.task.first_target, N_RESERVED + network.n_items
        counts = [
            self.folder.item_counts(window, "train", start, self.loader.types.is_target)
            for window in windows
        ]
        network.sampler.set_counts(torch.from_numpy(np.sum(counts, axis=0)[N_RESERVED:end]))

    def _n_sessions(self, windows: Sequence[Window], epochs: list[Batches]) -> int:
        """Count the sessions that a fit goes through; only the last batch of an epoch is short."""
        per_epoch = sum(self.folder.n_sessions(window, "train") for window in windows)
        n_whole, rest = divmod(self.trainer.n_steps(epochs), max(1, epochs[0].n_steps))
        return n_whole * per_epoch + rest * self.params.training.batch_size

    @in_phase("state")
    def state(self) -> dict[str, AnyTensor]:
        """Return the trainer's state; of a sharded table every process has its own rows."""
        if self.shard.is_whole and not self.process.is_main:
            return {}
        return sharded_state(self.trainer.state(), self.model, self.process)

    def restore(self, window: Window, state: Mapping[str, Tensor | StoredTensor] | None) -> None:
        """Continue from the main process's state after the fit of a window; a collective.

        Raises:
            ModelFileError: the state is not of this model; on every process, and each goes on with
                the model that it had.
        """
        model, trainer = self._build()
        own = scatter_state(state, model, self.process)
        reason = None
        try:
            trainer.restore(self.catalogue.sizes_at(window), own)
        except UNFIT_STATE as error:
            # Not the fault of the cached state, which would be set aside.
            if lack_of_memory(error) is not None:
                raise
            reason = " ".join(str(error).split())
        # If it fails on one process, all must try the fit before it.
        reasons = [each for each in self.process.all_gather(reason) if each is not None]
        if reasons:
            raise ModelFileError(f"its state does not fit the model: {reasons[0]}")
        self.model, self.trainer = model, trainer
        self._know_items(window)

    @in_phase("evaluate")
    def evaluate(self, window: Window, fit: Fit) -> EvaluatedWindow:
        """Evaluate the model of the last fit on the window after it."""
        config = self.params.evaluation
        # Before the clock starts: the time is that of the evaluated window alone.
        train_ranks = self._train_ranks(fit.window)
        offered = self._offered_at(window.start_time)
        best = Best(config.predictions, self.lists.start(fit.window, len(offered)))
        start = time.perf_counter()
        with phase("data"):
            sessions = self.loader.evaluation_sessions(window)
            targets = self.loader.targets_of(sessions)
        n_targets = targets.counts
        if self.model.tick:
            ranked = self._evaluate_live(window, n_targets, best)
        else:
            with phase("data"):
                batches = self.loader.evaluation_batches(window, self.process.rank)
            ranked = evaluate(self.model, batches, n_targets, offered, self.process, best)
        ranks = ranked.as_window_ranks(sessions[SESSION_ID], targets)
        seconds = time.perf_counter() - start
        timing = Timing(
            window=window.name,
            fit_seconds=fit.seconds,
            fit_sessions_per_second=fit.n_sessions / fit.seconds,
            evaluate_seconds=seconds,
            evaluate_sessions_per_second=ranks.n_sessions / seconds,
            state_bytes=fit.state_bytes,
        )
        if self.model.tick:
            offered = self._offered_at(self.folder.ends[window.name])
        raw = self.folder.vocabulary(ITEM_ID)[VALUE]
        predictions = prediction_table(ranks, ranked, raw) if config.predictions else None
        return EvaluatedWindow(
            window=window.name,
            ranks=ranks,
            train_ranks=train_ranks,
            train_loss=fit.loss,
            timing=timing,
            predictions=predictions,
            attention=self._attention(window, sessions[SESSION_ID]),
            lists=self.lists.finish(best.lists, offered.candidates),
        )

    def _evaluate_live(
        self, window: Window, n_targets: NDArray[np.int64], best: Best
    ) -> RankedTargets:
        """Rank the targets of a window while the model counts it."""
        with phase("data"):
            train = self.loader.train_sessions(window)
            sessions = self.loader.evaluated_sessions(window)
        self.trainer.follow(window.name, self.catalogue.sizes_at(window), train)
        end, size = self.folder.ends[window.name], self.params.evaluation.batch_size
        request = Request.of(sessions, n_targets, self.model.tick, end, best)
        return evaluate_live(self.model, request, self._offered_at, self.process, size)

    def _offered_at(self, time: int) -> Offered:
        """Return what sessions may get at a time, microseconds since 1970.

        With ticks, items that the model has counted since the fit are among them.
        """
        found = self.candidates
        if self.model.tick:
            found = union(found, self.model.counted_items)
        return Offered.at(time, found, self.items_table)

    def _attention(self, window: Window, ids: pa.ChunkedArray) -> pa.Table | None:
        """Return attention weights of a window's chosen sessions, on the main process.

        With sharded items the other processes take part, because look-ups are collective.
        """
        config = self.params.evaluation
        is_chosen = pc.is_in(ids, pa.array(config.attention_of, pa.string()))
        takes_part = self.process.is_main or not self.shard.is_whole
        network = self.model.network
        if not (takes_part and pc.any(is_chosen).as_py()) or network is None:
            return None
        columns = [SESSION_ID, *self.loader.columns]
        table = self.folder.read(window, config.split, columns).filter(is_chosen)
        return attention_table(network, table, self.loader.past_length, self.process.device)

    def _train_ranks(self, window: Window) -> NDArray[np.int32]:
        """Return ranks of a sample of the sessions just fitted; empty where the sample is."""
        if not self.params.evaluation.train_sessions:
            return np.zeros(0, np.int32)
        n_targets, batches = self.loader.train_sample(window, self.process.rank)
        offered = self._offered_at(window.start_time)
        return evaluate(self.model, batches, n_targets, offered, self.process).ranks

    @in_phase("save")
    def save(self, window: Window) -> None:
        """Write models/ and evidence.csv, of the fit of `window`; every process calls this."""
        self.model.rewind()
        weights = sharded_state(weights_of(self.model), self.model, self.process)
        if not self.process.is_main:
            send_rows(weights)
            return
        write_evidence(self.study.results / EVIDENCE, self.model.evidence())
        params, sizes = self.params, self.catalogue.sizes_at(window)
        config = ModelConfigFile(
            dataset=params.dataset,
            window=window.name,
            end=self.folder.ends[window.name],
            **params.sections(),
            seed=params.training.seed,
            sizes=sizes,
            first_sizes=self.first_sizes,
            known=self.catalogue.known_after(window),
            statistics=self.folder.statistics.select(params.model.features),
        )
        vocabularies = {
            column: self.folder.vocabulary(column)
            .slice(0, size)
            .select([INDEX, VALUE, FIRST_TIME])
            .combine_chunks()
            for column, size in sizes.items()
        }
        popularity = self.folder.item_counts(window, "train")[self.candidates]
        items = StoredItems.of(self.items_table, self.folder, self.model.vectors)
        stored = StoredModel(config, self.model, self.candidates, popularity, vocabularies, items)
        save_model(self.study.models, stored, weights)
