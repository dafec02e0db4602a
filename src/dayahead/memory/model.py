"""The model `memory`: memories of clicks, joined by a head that learns how to weigh them.

The head is stacked prequentially (Dawid 1984; Wolpert 1992): an example of window i has the
features that memories and network computed after window i - 1, just as window i + 1 will be scored
after window i.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.core.phases import phase
from dayahead.core.prefixes import with_prefix
from dayahead.memory.clicks import Clicks, Ints, Positions
from dayahead.memory.context import OF_GATE
from dayahead.memory.explain import contributions
from dayahead.memory.gate import Gate
from dayahead.memory.head import Head, Mixture
from dayahead.memory.head_examples import Examples, Replay
from dayahead.memory.memories import Memories, Read
from dayahead.memory.network import NETWORK
from dayahead.memory.own import IS_OWN
from dayahead.memory.pairs import REACH
from dayahead.memory.settings import MemorySettings
from dayahead.memory.training import HeadTrainer, LiveNetwork

CELLS = 40_000
"""Maximum number of candidates, over all prefixes, that are read at once: bounds memory."""
NetworkScores = Callable[[Positions, Int[Tensor, "B C"]], Float[Tensor, "B C"]]
"""From the positions of prefixes and their candidates to scores, which are logits of a softmax."""
NetworkUpdate = Callable[[int, int], None]
"""Takes a step of a network by its gradients, given its number and how many there are."""
MemoryScorer = Callable[[Clicks, NetworkScores | None], Float32[Tensor, "B C"]]
"""From prefixes, none empty, whose last click is the latest one known, and the network's scores
where there is a network, to scores of items."""
_FITS = "n_fits"
TRAINING_STATE = ("moments.", "replay.")
"""Prefixes of the tensors that only further fits read, not scores."""


class MemoryModel:
    """Memories and the head."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self.memories = Memories(settings)
        self.features = self.memories.features
        """Names of the features, in the order of the head's weights."""
        sizes = len(self.features), len(self.memories.context)
        self.head = self._head()
        self.trainer = HeadTrainer(self.head, settings.config)
        self.replay = Replay(settings.config.n_replayed, settings.config.n_candidates, *sizes)
        self.n_fits = 0
        self.known: dict[str, int] = {}
        """Size of each vocabulary at the last fit: later values are new in their window."""

    def _head(self) -> Head:
        config, seed = self.settings.config, self.settings.seed
        context = self.memories.context
        if config.head == "mixture":
            return Mixture(self.memories.is_share, len(context), seed)
        gate = Gate([context.index(name) for name in OF_GATE], config.n_candidates)
        return Head(len(self.features), len(context), config.head_width, seed, gate)

    @property
    def _network_column(self) -> int:
        """Index of the network's feature."""
        return self.features.index(NETWORK)

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return self.memories.n_items

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the memories to the first `sizes[column]` values of each vocabulary."""
        self.memories.grow(sizes)

    def fit(
        self,
        sessions: Clicks,
        end: int,
        network: NetworkScores | None = None,
        update: NetworkUpdate | None = None,
    ) -> float | None:
        """Fit the head on a window's sessions, then add them to the memories.

        The first window's head is fitted on the later half, with memories of the earlier.

        Args:
            sessions: of the window, in any order.
            end: of the window, in microseconds since 1970.
            network: the network, if any, in its state before the window (in the first window:
                fitted on the earlier half). Its positions are in the sessions.
            update: fits the network by the head's loss too, for which its scores have gradients.

        Returns:
            The head's mean loss, None where there was nothing to learn from.
        """
        early, late = sessions.halves()
        order = np.concatenate([early, late])
        memories, rows = self.memories, order
        if self.n_fits == 0:
            memories, rows = self._memories_of(sessions.take(early)), late
        loss = self._fit_head(memories, sessions.take(rows), rows, network, update)
        self.memories.add(sessions.take(order), end)
        self.n_fits += 1
        self.known = self.memories.sizes
        return loss

    def _memories_of(self, sessions: Clicks) -> Memories:
        """Return memories of these sessions alone, at the time of their last click."""
        memories = Memories(self.settings)
        memories.grow(self.memories.sizes)
        if len(sessions):
            memories.add(sessions, int(sessions.times.max()))
        return memories

    def _fit_head(
        self,
        memories: Memories,
        sessions: Clicks,
        rows: Ints,
        network: NetworkScores | None,
        update: NetworkUpdate | None,
    ) -> float | None:
        """Fit on all clicks but the first of each session; `rows` are their rows in the window."""
        # A seed for each fit: a model that is resumed at any window draws the same.
        [seed] = np.random.SeedSequence([self.settings.seed, self.n_fits]).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed))
        every = sessions.positions()
        n_positions, config = len(every.rows), self.settings.config
        drawn = torch.randperm(n_positions, generator=generator)[: config.n_examples]
        # Back in order of time: the replay keeps the last examples.
        chosen = np.sort(drawn.numpy())
        # As in evaluation, where items that are new in a window are unknown.
        before = sessions.known(self.known.values()) if self.n_fits else sessions
        read = memories.reader(config.n_candidates)
        parts, asked = [], []
        for part in np.split(chosen, _cuts(len(chosen), config.n_candidates)):
            positions = every.take(part)
            found = read(before.prefixes(positions))
            in_window = Positions(rows[positions.rows], positions.n_after)
            examples = self._examples(found, network, in_window, sessions.following(positions))
            # A target that is no candidate has no column: the loss is over candidates only.
            is_learnable = examples.targets.numpy() >= 0
            parts.append(examples.take(torch.from_numpy(is_learnable)))
            if update:
                [learnable] = is_learnable.nonzero()
                asked.append((in_window.take(learnable), found.candidates[learnable]))
        new = self._scaled(parts)
        if not len(new):
            return None
        live = self._live(network, update, asked) if network and update else None
        epochs = config.epochs if self.n_fits else config.first_epochs
        loss = self.trainer.fit(Examples.cat([self.replay.kept, new]), epochs, generator, live)
        self.replay.add(new)
        return loss

    def _live(
        self,
        network: NetworkScores,
        update: NetworkUpdate,
        asked: list[tuple[Positions, NDArray[np.int32]]],
    ) -> LiveNetwork:
        """Return the network, trained along with the head, for these positions and candidates."""
        positions = Positions(
            *(np.concatenate(each) for each in zip(*(a[0] for a in asked), strict=True))
        )
        candidates = torch.from_numpy(np.concatenate([each[1] for each in asked])).long()

        def feature(chosen: Int[Tensor, " k"]) -> Float[Tensor, "k C"]:
            wanted = candidates[chosen]
            scores = network(positions.take(chosen.numpy()), wanted)
            return self.head.scaled_column(self._log_softmax(scores, wanted > 0), column)

        column = self._network_column
        return LiveNetwork(len(self.replay.kept), column, feature, update)

    def _scaled(self, parts: list[Examples]) -> Examples:
        """Standardise and join examples; the first fit's decide mean and deviation."""
        if not self.head.n_standardised:
            # Once only: replayed examples are kept standardised and would not fit a new scale.
            self.head.learn_scale(Examples.cat(parts))
            if self.settings.config.end_to_end:  # an unfitted network's scores hardly differ
                self.head.features_std[self._network_column] = 1.0
        return Examples.cat([self.head.scaled(part).half() for part in parts])

    def _examples(
        self,
        read: Read,
        network: NetworkScores | None,
        positions: Positions,
        targets: Ints | None = None,
    ) -> Examples:
        """Join the features of memories and network for some prefixes, and their targets."""
        self._check_network(network)
        candidates = torch.from_numpy(read.candidates).long()
        features = torch.from_numpy(read.features)
        if network is not None and len(candidates):
            with torch.no_grad():
                with phase("network"):
                    scores = network(positions, candidates)
                features[..., self._network_column] = self._log_softmax(scores, candidates > 0)
        columns = torch.full((len(candidates),), -1)
        if targets is not None:
            is_target = (candidates == torch.from_numpy(targets)[:, None]) & (candidates > 0)
            columns = torch.where(is_target.any(1), is_target.int().argmax(1), -1)
        is_own, context = torch.from_numpy(read.is_own), torch.from_numpy(read.context)
        return Examples(features, candidates > 0, is_own, context, columns)

    def _log_softmax(
        self, scores: Float[Tensor, "B C"], is_candidate: Bool[Tensor, "B C"]
    ) -> Float[Tensor, "B C"]:
        """Normalise a network's scores over the best `n_candidates`, as in training.

        A softmax over the catalogue would differ by a constant for each prefix, and take longer.
        """
        best = slice(self.settings.config.n_candidates)
        known = scores[:, best].masked_fill(~is_candidate[:, best], -torch.inf)
        sums = known.logsumexp(1, keepdim=True)
        return (scores - sums).masked_fill(~is_candidate, 0.0)

    def _check_network(self, network: NetworkScores | None) -> None:
        if (network is not None) != self.settings.with_network:
            wanted = "a network's scores" if self.settings.with_network else "no network's scores"
            raise ConfigError(f"the memory model expects {wanted}: set with_network accordingly")

    def scores(
        self, prefixes: Clicks, candidates: Ints, network: NetworkScores | None = None
    ) -> Float32[Tensor, "B C"]:
        """Score items after each prefix once; arguments and scores are those of `scorer`."""
        return self.scorer(candidates)(prefixes, network)

    def scorer(self, candidates: Ints) -> MemoryScorer:
        """Return a function that scores distinct catalogue indices, until the next fit.

        The head's scores are 0 or more. Items that it does not rank get -2 to -1, by popularity.
        """
        allowed = np.zeros(self.n_items + N_RESERVED, bool)
        allowed[candidates] = True
        popularity = self.memories.known.popularity
        wanted = torch.from_numpy(candidates).long()
        fallback = torch.from_numpy(popularity / popularity.max() - 2)
        column_of = torch.full((len(fallback),), -1)
        column_of[wanted] = torch.arange(len(wanted))
        n_ranked = self._n_ranked(allowed)
        read = self.memories.reader(n_ranked, allowed)

        @torch.no_grad()
        def scores(prefixes: Clicks, network: NetworkScores | None) -> Float32[Tensor, "B C"]:
            scored = fallback[wanted].repeat(len(prefixes), 1)
            for part in np.split(np.arange(len(prefixes)), _cuts(len(prefixes), n_ranked)):
                found = read(prefixes.take(part))
                rows, columns, of_head = self._ranked(found, network, part)
                items = torch.from_numpy(found.candidates).long()[rows, columns]
                scored[torch.from_numpy(part)[rows], column_of[items]] = of_head
            return scored

        return scores

    def _ranked(
        self, found: Read, network: NetworkScores | None, part: Ints
    ) -> tuple[Int[Tensor, " K"], Int[Tensor, " K"], Float[Tensor, " K"]]:
        """Return rows and columns of the candidates found, and the head's scores, 0 or more."""
        positions = Positions(part, np.zeros_like(part))
        examples = self.head.scaled(self._examples(found, network, positions))
        with phase("head"):
            of_head = self.head(examples)
        if not self.head.n_standardised:  # nothing is learned yet: the candidates' own order
            of_head = -torch.arange(of_head.shape[1]).expand_as(of_head).float()
        lowest = of_head.masked_fill(~examples.is_candidate, torch.inf).amin(1, keepdim=True)
        rows, columns = examples.is_candidate.nonzero(as_tuple=True)
        # Shifted to 0 or more for each prefix, so that no fallback score can be above the head's.
        return rows, columns, (of_head - lowest)[rows, columns]

    def _n_ranked(self, allowed: NDArray[np.bool_]) -> int:
        """Count the items that the head ranks for each prefix."""
        if self.settings.config.rank_all:
            return int((allowed & self.memories.items.is_seen).sum()) + REACH  # and own ones
        return self.settings.config.n_candidates

    def explain(
        self, prefix: Clicks, items: Ints, network: NetworkScores | None = None
    ) -> list[dict[str, float]]:
        """Attribute the scores of items after one prefix to the named features.

        They are relative to the mean candidate. Empty where an item is no candidate.
        """
        found = self.memories.reader(self._n_ranked(self.memories.items.is_seen))(prefix)
        row = np.array([0])
        examples = self.head.scaled(self._examples(found, network, Positions(row, row)))
        column_of = {item: column for column, item in enumerate(found.candidates[0].tolist())}
        own = self.features.index(IS_OWN)

        def parts(item: int) -> dict[str, float]:
            if item not in column_of:
                return {}
            found = contributions(self.head, examples, column_of[item], own)
            return dict(zip(self.features, found.tolist(), strict=True))

        return [parts(item) for item in items.tolist()]

    def weights(self) -> dict[str, float]:
        """Return how much each feature raises a score; for a linear head these are its weights.

        It is the mean gradient, per standard deviation, over candidates of the kept examples.
        """
        kept = self.replay.kept.single()
        if not len(kept):
            return {}
        features = kept.features.requires_grad_()
        total = self.head.evidence(features, kept.context)[kept.is_candidate].sum()
        [gradients] = torch.autograd.grad(total, [features])
        means = gradients[kept.is_candidate].mean(0)
        return dict(zip(self.features, means.tolist(), strict=True))

    def state_dict(self) -> dict[str, Tensor]:
        """Copy all tensors that further fits and scores depend on."""
        state = {_FITS: torch.tensor([self.n_fits])}
        for name, part in self._state_parts().items():
            state |= {f"{name}.{key}": value.clone() for key, value in part.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state of the same settings.

        Without its TRAINING_STATE the model gives the same scores, but must not be fitted on.
        """
        # Saved models for serving leave the training state out.
        is_whole = any(name.startswith(TRAINING_STATE) for name in state)
        for name, part in self._state_parts().items():
            if is_whole or f"{name}." not in TRAINING_STATE:
                part.load_state_dict(with_prefix(state, f"{name}."))
        self.n_fits = int(state[_FITS])
        self.known = self.memories.sizes

    def _state_parts(self) -> dict[str, Memories | Head | HeadTrainer | Replay]:
        return {
            "memories": self.memories,
            "head": self.head,
            "moments": self.trainer,
            "replay": self.replay,
        }


def _cuts(n_rows: int, n_columns: int) -> Ints:
    """Return where to cut rows into parts of at most CELLS cells."""
    step = max(1, CELLS // max(1, n_columns))
    return np.arange(step, n_rows, step)
