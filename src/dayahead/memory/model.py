"""The model `memory`: memories of clicks, joined by a head that learns how to weigh them.

The head is stacked prequentially (Dawid 1984; Wolpert 1992): an example of window i has the
features that memories and network computed after window i - 1, just as window i + 1 will be scored
after window i.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.errors import ConfigError
from dayahead.core.phases import phase
from dayahead.core.prefixes import with_prefix
from dayahead.distributed.process import ALONE
from dayahead.memory.awaited import parts
from dayahead.memory.clicks import Clicks, Flags, Ints, WindowSessions
from dayahead.memory.content import N_NEW
from dayahead.memory.context import OF_GATE
from dayahead.memory.explain import contributions, mean_gradients
from dayahead.memory.gate import Gate
from dayahead.memory.head import Head, Mixture
from dayahead.memory.head_examples import Examples, Replay
from dayahead.memory.memories import MEMORIES, Memories, Read
from dayahead.memory.network import NETWORK, log_softmax
from dayahead.memory.outline import Positions
from dayahead.memory.own import IS_OWN
from dayahead.memory.pairs import REACH
from dayahead.memory.running import RunningSessions
from dayahead.memory.settings import MemorySettings
from dayahead.memory.threads import in_threads
from dayahead.memory.training import HeadTrainer, JointNetwork
from dayahead.memory.window import Drawing, NetworkScores, OpenWindow
from dayahead.metrics.scores import FewScores, SharedScores

NetworkUpdate = Callable[[int, int], None]
"""Takes a step of a network by its gradients, given its number and how many there are."""
MemoryScorer = Callable[[Clicks, NetworkScores | None], FewScores]
"""From prefixes, none empty, whose last click is the latest one known, and the network's scores
where there is a network, to scores of items."""
_FITS = "n_fits"
TRAINING_STATE = ("moments.", "replay.")
"""Prefixes of the tensors that only further fits read."""


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
        self.running = RunningSessions(settings)
        self.window: OpenWindow | None = None
        """The window that is being counted."""
        self.process = ALONE
        """All of a run's processes count alike; each reads a part of the head's examples."""

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

    def open(
        self,
        sessions: WindowSessions,
        end: int,
        network: NetworkScores | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        to_fit: bool = True,
    ) -> OpenWindow:
        """Start a window: choose what the head will learn from it.

        The first window's head is fitted on the later half.

        Args:
            sessions: of the window, in any order.
            end: of the window, in microseconds since 1970.
            network: the network, if any, in its state before the window (in the first window:
                fitted on the earlier half). Its positions are in the sessions.
            sizes: number of values of each vocabulary at the window, unless it has grown already.
            to_fit: whether there is anything to learn; else the network is not asked.
        """
        self.rewind()
        # A seed for each fit: a model that is resumed at any window draws the same.
        [seed] = np.random.SeedSequence([self.settings.seed, self.n_fits]).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed))
        n_most = self.settings.config.n_examples if to_fit else 0
        drawing = Drawing(n_most, self.settings.tick, generator, is_first=not self.n_fits)
        window = OpenWindow.of(sessions, end, network, drawing)
        if self.settings.tick:
            window.before = self.memories.state_dict(), self.running.state_dict()
            self.grow(sizes or self.memories.sizes)
            self.running.deliver(sessions.take(window.order))
        if self.n_fits == 0:  # also to the network, which is fitted on a part of this window
            self.memories.n_old = self.memories.n_items
        self.window = window
        return window

    def advance(self, until: int) -> None:
        """Let time pass until a tick: count the clicks before it, and read examples on the way."""
        window = self.window
        while window and (tick := window.next_tick()) is not None and tick <= until:
            self._count_until(tick)
            window.wait(tick)
        self._count_until(until)

    def _count_until(self, until: int) -> None:
        # A click that comes late counts at the next time: the clock does not go back.
        until = max(until, self.memories.counted_at)
        if until != self.memories.now:
            self._read_awaited(self.memories)
        while (time := self.running.next_time()) <= until:
            time = max(time, self.memories.counted_at)
            self.memories.count(self.running.advance(time), time)
        self.memories.move_to(until)

    def rewind(self) -> None:
        """Return to the state before the window that is open, if one is."""
        if self.window is not None and self.window.before is not None:
            memories, running = self.window.before
            self.memories.load_state_dict(memories)
            self.running.load_state_dict(running)
        self.window = None

    def fit(
        self,
        sessions: WindowSessions,
        end: int,
        network: NetworkScores | None = None,
        update: NetworkUpdate | None = None,
    ) -> float | None:
        """Count all of a window, and fit the head on it as it was before each click counted.

        Args:
            sessions: as of `open`, which is called here unless the window is open already.
            end: as of `open`.
            network: as of `open`.
            update: also trains the network on the head's loss, through the gradients of its scores.

        Returns:
            The head's mean loss, None where there was nothing to learn from.
        """
        window = self.window
        if window is None or window.end != end:
            window = self.open(sessions, end, network)
        if self.settings.tick:
            self.advance(end)
            self._read_awaited(self.memories)
            self.memories.count(self.running.advance(end), end)
            self.memories.compact()
        else:
            window.wait(0)
            # Not by a name, which would hold the memories of the half until the window is counted.
            self._read_awaited(
                self.memories if self.n_fits else self.memories.of(*window.earlier_half())
            )
            self.memories.add(window.sessions.parts(window.order), end)
        self.window = None
        loss = self._learn(window, update)
        self.memories.know_all()
        self.n_fits += 1
        self.known = self.memories.sizes
        return loss

    def _read_awaited(self, memories: Memories) -> None:
        """Read the examples that are awaited, if any, as the memories are now; a collective."""
        window, n_candidates = self.window, self.settings.config.n_candidates
        if window is None or (awaited := window.awaited) is None:
            return
        rank = self.process.rank
        cut = parts(len(awaited.prefixes), n_candidates, rank.world_size)

        def read() -> Iterator[list[Tensor]]:
            own = cut[rank.index :: rank.world_size]
            for part, found in awaited.read(memories.reader(n_candidates), own):
                in_window = window.in_window(awaited.positions.take(part))
                examples = self._examples(found, window.network, in_window)
                if self.head.n_standardised:  # at once, as raw ones are twice as large
                    examples = self.head.scaled(examples).half()
                yield [torch.from_numpy(found.candidates), *examples.tensors()]

        every = self.process.in_turns(read(), [len(part) for part in cut])
        for part, (candidates, *tensors) in zip(cut, every, strict=True):
            window.add(Examples(*tensors), awaited.positions.take(part), candidates.numpy())
        window.awaited = None

    def _learn(self, window: OpenWindow, update: NetworkUpdate | None) -> float | None:
        """Fit the head on the examples of a window."""
        kept, config, parts = self.replay.kept, self.settings.config, window.examples
        if not (n_new := sum(map(len, parts))):
            return None
        if not self.head.n_standardised:  # once only: replayed examples are kept standardised
            self._learn_scale(parts)
            parts[:] = [self.head.scaled(parts.pop(0)).half() for _ in range(len(parts))]
        new = (parts.pop(0) for _ in range(len(parts)))  # each is let go of once it is copied
        examples = Examples.joined(chain([kept], new), len(kept) + n_new)
        joint = self._joint(window.network, update, window) if window.network and update else None
        epochs = config.epochs if self.n_fits else config.first_epochs
        loss = self.trainer.fit(examples, epochs, window.generator, joint)
        self.replay.add(examples.take(slice(len(kept), None)))
        return loss

    def _joint(
        self, network: NetworkScores, update: NetworkUpdate, window: OpenWindow
    ) -> JointNetwork:
        """Return the network, trained along with the head on the examples of a window."""
        positions, asked = window.every_predicted()
        candidates = torch.from_numpy(asked).long()

        def feature(chosen: Int[Tensor, " k"]) -> Float[Tensor, "k C"]:
            found = self._network_feature(
                network, positions.take(chosen.numpy()), candidates[chosen]
            )
            return self.head.scaled_column(found, column)

        column = self._network_column
        return JointNetwork(len(self.replay.kept), column, feature, update)

    def _learn_scale(self, parts: list[Examples]) -> None:
        """Compute mean and deviation from the first fit's examples."""
        self.head.learn_scale(parts)
        if self.settings.config.end_to_end:  # an unfitted network's scores hardly differ
            self.head.features_std[self._network_column] = 1.0

    def _examples(
        self, read: Read, network: NetworkScores | None, positions: Positions
    ) -> Examples:
        """Join the features of memories and network for some prefixes; there are no targets yet."""
        self._check_network(network)
        candidates = torch.from_numpy(read.candidates).long()
        features = torch.from_numpy(read.features)
        if network is not None and len(candidates):
            with torch.no_grad(), phase("network"):
                column = self._network_feature(network, positions, candidates)
            features[..., self._network_column] = column
        is_own, context = torch.from_numpy(read.is_own), torch.from_numpy(read.context)
        targets, weights = torch.full((len(candidates),), -1), torch.ones(len(candidates))
        return Examples(features, candidates > 0, is_own, context, targets, weights)

    def _network_feature(
        self, network: NetworkScores, positions: Positions, candidates: Int[Tensor, "B C"]
    ) -> Float[Tensor, "B C"]:
        scores = partial(network, positions)
        return log_softmax(
            scores, candidates, self.memories.n_old, self.settings.config.n_candidates
        )

    def _check_network(self, network: NetworkScores | None) -> None:
        if (network is not None) != self.settings.with_network:
            wanted = "a network's scores" if self.settings.with_network else "no network's scores"
            raise ConfigError(f"the memory model expects {wanted}: set with_network accordingly")

    def scores(
        self, prefixes: Clicks, candidates: Ints, network: NetworkScores | None = None
    ) -> Float32[Tensor, "B C"]:
        """Score items after each prefix once; arguments and scores are those of `scorer`."""
        return self.scorer(candidates)(prefixes, network).dense()

    def scorer(self, candidates: Ints) -> MemoryScorer:
        """Return a function that scores distinct catalogue indices, until the next fit.

        The head's scores are 0 or more. Items that it does not rank get -2 to -1, by popularity.
        """
        allowed = self._allowed(candidates)
        popularity = self.memories.known.popularity
        wanted = torch.from_numpy(candidates).long()
        shared = SharedScores(torch.from_numpy(popularity / popularity.max() - 2)[wanted])
        column_of = torch.full((len(popularity),), -1)
        column_of[wanted] = torch.arange(len(wanted))
        n_ranked = self._n_ranked(allowed)
        awaited = self.window.awaited if self.window and self.memories.reads_all(allowed) else None
        read = self.memories.reader(n_ranked, allowed)

        @torch.no_grad()
        def scores(prefixes: Clicks, network: NetworkScores | None) -> FewScores:
            columns, of_head = [], []
            cut = parts(len(prefixes), n_ranked)
            taken = [prefixes.take(part) for part in cut]
            reads = in_threads(read, taken, MEMORIES)
            for part, clicks, found in zip(cut, taken, reads, strict=True):
                if awaited and n_ranked == self.settings.config.n_candidates:
                    awaited.offer(clicks, found, allowed)
                columns.append(column_of[torch.from_numpy(found.candidates).long()])
                of_head.append(self._of_head(found, network, part))
            return FewScores(shared, torch.cat(columns), torch.cat(of_head))

        return scores

    def _allowed(self, candidates: Ints) -> Flags:
        return np.isin(np.arange(self.n_items + N_RESERVED), candidates)

    def _of_head(self, found: Read, network: NetworkScores | None, part: Ints) -> Tensor:
        """Return the head's scores [B, K] of the candidates found, 0 or more."""
        positions = Positions(part, np.zeros_like(part))
        examples = self.head.scaled(self._examples(found, network, positions))
        with phase("head"):
            of_head = self.head(examples)
        if not self.head.n_standardised:  # nothing is learned yet: the candidates' own order
            of_head = -torch.arange(of_head.shape[1]).expand_as(of_head).float()
        lowest = of_head.masked_fill(~examples.is_candidate, torch.inf).amin(1, keepdim=True)
        # Shifted to 0 or more for each prefix, so that no shared score can be above the head's.
        scores: Tensor = of_head - lowest
        return scores

    def _n_ranked(self, allowed: NDArray[np.bool_]) -> int:
        """Count the items that the head ranks for each prefix."""
        if not self.settings.config.rank_all:
            return self.settings.config.n_candidates
        return int((allowed & self.memories.items.is_seen).sum()) + REACH + N_NEW  # own, new ones

    def explain(
        self, prefix: Clicks, items: Ints, candidates: Ints, network: NetworkScores | None = None
    ) -> list[dict[str, float]]:
        """Attribute the scores of items after one prefix to the named features.

        Relative to the mean of what the head ranks of `candidates`; empty for others.
        """
        allowed = self._allowed(candidates)
        found = self.memories.reader(self._n_ranked(allowed), allowed)(prefix)
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
        """Return how much each feature raises a score, after the examples that are kept."""
        kept = self.replay.kept
        found = mean_gradients(self.head, kept).tolist() if len(kept) else []
        return dict(zip(self.features, found, strict=bool(found)))

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

    def _state_parts(self) -> dict[str, Memories | Head | HeadTrainer | Replay | RunningSessions]:
        return {
            "memories": self.memories,
            "head": self.head,
            "moments": self.trainer,
            "replay": self.replay,
            **({"running": self.running} if self.settings.tick else {}),
        }
