"""The trainer of `memory` with a network: on each window the network is fitted after the head."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.config.params import TrainingConfig
from dayahead.core.columns import IS_TARGET, ITEM_ID, N_RESERVED
from dayahead.core.phases import in_phase, phase
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.distributed.process import Process
from dayahead.memory.outline import Positions
from dayahead.memory.window import NetworkScores
from dayahead.model.checkpoint import WEIGHTS, restore_weights, weights_of
from dayahead.model.inputs import without_later
from dayahead.model.memory_recommender import MemoryRecommender
from dayahead.model.next_item import NextItemModel
from dayahead.model.tasks import is_before
from dayahead.train.batches import LoadedBatches
from dayahead.train.optimizer import set_learning_rate
from dayahead.train.streaming import Batches, CountedBatches
from dayahead.train.trainers import GradientTrainer, OnStep


class MemoryTrainer:
    """Fits head, memories and network on one window after another, in this order.

    The head thus learns the network's weight on sessions that the network was not fitted on. Every
    process fits the same head and memories; the network's batches are distributed as usual.

    Args:
        model: the model to fit.
        network: the model's network.
        ends: end of each window, microseconds since 1970.
        config: training of the network, as without memories.
        process: this process.
    """

    def __init__(
        self,
        model: MemoryRecommender,
        network: NextItemModel,
        ends: Mapping[str, int],
        config: TrainingConfig,
        process: Process,
    ) -> None:
        self.model = model
        self.ends = ends
        self.rank = process.rank
        early = config
        if config.steps_per_window is None and not self._is_end_to_end:
            # Only upper limits: the loader still gives a fit `training.epochs` epochs.
            limits = model.memory.settings.config
            early = replace(config, steps_per_window=limits.early_network_steps)
            config = replace(config, steps_per_window=limits.network_steps)
        self.early_config = early
        self.network = GradientTrainer(network, config, process)

    def grow(self, sizes: dict[str, int]) -> None:
        """Make room for the first `sizes[column]` values of each vocabulary."""
        before = dict(self.network.model.named_parameters())
        self.model.grow(sizes)
        self.network.follow_growth(before)

    def n_steps(self, epochs: list[Batches]) -> int:
        """Return the network's steps; end to end, those of one pass."""
        return epochs[0].n_steps if self._is_end_to_end else self.network.n_steps(epochs)

    def follow(self, window: str, sizes: dict[str, int], sessions: LoadedBatches) -> None:
        """Let the model count a window before it is fitted on."""
        network = self._scores_of(self.network.model, sessions.unsplit().counted())
        self.model.follow(sizes, sessions.padded(), self.ends[window], network)

    @property
    def _is_end_to_end(self) -> bool:
        return self.model.memory.settings.config.end_to_end

    def fit(self, window: str, epochs: list[Batches], on_step: OnStep) -> float | None:
        """Fit on a window; return the mean loss of the head, None where it learned nothing."""
        sessions = epochs[0].unsplit().counted()
        self.model.read = sessions.read
        self.model.start_window(self.ends[window])
        with phase("count"):
            for batch in sessions:
                self.model.count(batch.columns, batch.lengths)
        if self._is_end_to_end:
            loss = self._fit_end_to_end(window, sessions)
            on_step(len(sessions.every_row))
            return loss
        network = self.network.model
        if not self.model.memory.n_fits:
            # The first window has no earlier network: a copy is fitted on its first half.
            early, _ = self.model.sessions.outline().halves()
            rows = sessions.every_row[early]
            network = self._fitted_early(window, [each.among(rows) for each in epochs])
        with phase("memory"):
            loss = self.model.finish_window(self._scores_of(network, sessions))
        with phase("network"):
            self.network.fit(window, epochs, on_step)
        return loss

    @in_phase("memory")
    def _fit_end_to_end(self, window: str, sessions: CountedBatches) -> float | None:
        """Fit head and network together by the head's loss, alike on every process.

        The network reads as in evaluation: without dropout and noise, in float32.
        """
        own = self.network

        def update(step: int, n_steps: int) -> None:
            set_learning_rate(own.optimizer, own.config, step, n_steps)
            own.update(window, step)

        return self.model.finish_window(self._scores_of(own.model, sessions), update)

    @in_phase("early network")
    def _fitted_early(self, window: str, epochs: list[Batches]) -> NextItemModel:
        """Return a copy of the network that is fitted on a part of the window."""
        own = self.network
        # A copy: the network itself is fitted on the whole window, from its initial weights.
        trainer = GradientTrainer(deepcopy(own.model), self.early_config, own.process)
        trainer.wrap()
        if trainer.model.sampler is not None and trainer.model.loss.is_sampled:
            trainer.model.sampler.set_counts(_target_counts(trainer.model, epochs[0].unsplit()))
        trainer.fit(window, epochs, lambda _: None)
        return trainer.model

    def _scores_of(self, model: NextItemModel, sessions: CountedBatches) -> NetworkScores:
        """Return a network's scores at positions in the sessions of a pass.

        Items that are new since the previous fit are read as unknown, as in memories and
        evaluation.
        """
        device, known = model.bias.device, self.model.memory.known

        def scores(positions: Positions, candidates: Int[Tensor, "b C"]) -> Float[Tensor, "b C"]:
            batch = sessions.gather(torch.from_numpy(positions.rows))
            hidden = without_later(batch.columns, known, keeps_own_items=False)
            read = replace(batch, columns=hidden).to(device)
            n_known = read.lengths - torch.from_numpy(positions.n_after).to(device)
            return model.scores_at(read.columns, n_known, candidates.to(device)).cpu()

        return scores

    def state(self) -> dict[str, Tensor]:
        """Return memories, head and network, with the states of their optimizers."""
        return prefixed(weights_of(self.model), WEIGHTS) | self.network.moments()

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Load the state of a trainer whose vocabularies had these sizes."""
        restore_weights(self.model, sizes, with_prefix(state, WEIGHTS))
        self.network.restore_moments(state)


def _target_counts(model: NextItemModel, batches: Batches) -> Int[Tensor, " n_items"]:
    """Count how often each item is a target in the sessions of a pass."""
    counts = torch.zeros(N_RESERVED + model.n_items, dtype=torch.int64)
    for batch in batches:
        items = batch.columns[ITEM_ID]
        first = batch.global_past + model.task.first_target
        is_target = is_before(batch.lengths, items) & ~is_before(first, items)
        if IS_TARGET in batch.columns:
            is_target &= batch.columns[IS_TARGET] == 1
        counts += items[is_target].bincount(minlength=len(counts))
    return counts[N_RESERVED:]
