"""The architecture `memory` as a `Model`: converts padded batches to rows of clicks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.config.memory import MemoryConfig
from dayahead.config.model import ModelSections
from dayahead.core.columns import (
    LATEST_TIME,
    N_RESERVED,
)
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.distributed.process import Process
from dayahead.memory.clicks import Clicks, WindowSessions
from dayahead.memory.collected import Collected
from dayahead.memory.items import NEVER
from dayahead.memory.model import TRAINING_STATE, MemoryModel, NetworkUpdate
from dayahead.memory.outline import Positions
from dayahead.memory.running import COUNTERS, Events
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import DecayedTable
from dayahead.memory.training import MOMENTS
from dayahead.memory.window import NetworkScores
from dayahead.metrics.scores import FewScores
from dayahead.model.inputs import vocabulary_columns
from dayahead.model.model import CountingModel, Floats, Ints, Padded, PairScorer, associations
from dayahead.model.next_item import NextItemModel
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.own_items import OwnItems, Reminders, Scored, SessionScorer
from dayahead.model.padded_clicks import clicks_of
from dayahead.model.state_rules import COUNTS, TIMES, Limits, Rows
from dayahead.windows.items import ItemTable
from dayahead.windows.metadata import Statistics

ROW_KEYS: Limits = (0, 2.0**62)
"""Row keys of tables: they are searched for, not used as indices."""
_MEMORIES, _HEAD, _MOMENTS = "memory.memories.", "memory.head.", "memory.moments."
_REPLAY, _RUNNING = "memory.replay.", "memory.running."


class MemoryRecommender(CountingModel):
    """Memories of clicks joined by a head, which is fitted on a window before they are updated.

    Args:
        settings: of memories and head.
        network: a network whose scores are a feature. It is fitted by its own trainer.
        repeats: the data set's rule for repeats.
    """

    has_named_features = True
    pairs_are = (
        "how often both items are clicked near each other in a session, recent clicks more, "
        "relative to both items' totals"
    )
    read_by_fits_alone = tuple(f"memory.{prefix}" for prefix in TRAINING_STATE)

    def __init__(
        self, settings: MemorySettings, network: NextItemModel | None = None, repeats: str = "keep"
    ) -> None:
        super().__init__()
        self.categories = settings.columns
        self.tick = settings.tick
        self.vectors = settings.vectors
        self._network = network
        self.reminders = Reminders("auto", 0.0, 1.0, repeats)
        self.memory = MemoryModel(settings)
        self._end = 0
        self._collected = Collected(len(self.categories))

    @classmethod
    def build(
        cls,
        settings: ModelSections,
        statistics: Statistics,
        seed: int,
        network: NextItemModel | None,
    ) -> "MemoryRecommender":
        """Build the architecture `memory`, with a network or without.

        Raises:
            ConfigError: it is to read a feature that is no category, and no network reads it.
        """
        categories = vocabulary_columns(settings.model, statistics)[1:]
        others = [name for name in settings.model.features if name not in categories]
        if others and (network is None or not network.config.features):
            raise ConfigError(
                f"params.yaml: model.features: {', '.join(others)}: memory reads categorical "
                f"features only; leave {'it' if len(others) == 1 else 'them'} out, or set "
                f"model.network to one that reads features, such as gpt2"
            )
        live = settings.live
        of_memory = MemorySettings(
            config=settings.memory,
            unit=statistics.window_length,
            columns=categories,
            attributes=tuple(n for n in categories if statistics.features[n].of_item),
            vectors=_vectors_read(settings.memory, statistics),
            with_network=network is not None,
            with_past=settings.model.n_past_read > 0,
            tick=live.tick_microseconds,
            gap=live.gap_microseconds,
            min_length=statistics.sessions.min_length,
            has_weights=settings.events.weights is not None,
            seed=seed,
        )
        return cls(of_memory, network, statistics.sessions.repeats)

    @property
    def network(self) -> NextItemModel | None:
        """The network whose scores are a feature."""
        return self._network

    @property
    def counter(self) -> MemoryModel | None:
        """The memories and the head, where there is a tick."""
        return self.memory if self.tick else None

    def divide_among(self, process: Process) -> None:
        """Read the head's examples together with the other processes of a run.

        All of them have to fit on, follow and advance over the same windows.
        """
        self.memory.process = process

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend memories and network to the first `sizes[column]` values of each vocabulary."""
        super().grow(sizes)
        self.memory.grow(sizes)
        if self.network is not None:
            self.network.grow(dict(sizes))

    def know_items(self, table: ItemTable | None, *, with_new: bool = True) -> None:
        """Read attributes and vectors of items in this table from now on."""
        self.memory.memories.know_items(table, with_new=with_new)

    def follow(
        self,
        sizes: Mapping[str, int],
        sessions: Iterable[Padded],
        end: int,
        network: NetworkScores | None = None,
        *,
        to_fit: bool = True,
    ) -> None:
        """Start to count a window that ends at `end`; `network` is as in `MemoryModel.open`."""
        clicks = self._joined(self._clicks(columns, lengths) for columns, lengths in sessions)
        self.memory.open(clicks, end, network, sizes, to_fit=to_fit)

    def advance(self, until: int) -> None:
        """Count the clicks before a tick of the window that is followed."""
        self.memory.advance(until)

    def rewind(self) -> None:
        """Return to the state after the last fit."""
        self.memory.rewind()

    @property
    def counted_items(self) -> Ints:
        """Items counted so far, ascending vocabulary indices."""
        return self.memory.memories.counted_items

    def start_window(self, end: int) -> None:
        """Reset the popularity. The window ends at `end`, microseconds since 1970."""
        super().start_window(end)
        self._end = end
        # A window with ticks is counted in memory.
        read = None if self.read is None or self.tick else self._read_clicks
        self._collected = Collected(len(self.categories), read)

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Collect train sessions: right-padded columns [B, L]."""
        new = self._clicks(columns, lengths)
        self.popularity += np.bincount(new.items - N_RESERVED, new.worth, minlength=self.n_items)
        self.count_ends(columns, lengths)
        self._collected.add(new)

    @property
    def sessions(self) -> WindowSessions:
        """The window's sessions counted so far, in the order of counting."""
        return self._collected.sessions

    def _read_clicks(self, rows: Ints, *, is_held: bool) -> Clicks:
        assert self.read is not None
        return self._joined(self._clicks(*padded) for padded in self.read(rows, is_held))

    def _joined(self, parts: Iterable[Clicks]) -> Clicks:
        return Clicks.cat([*parts], len(self.categories))

    def finish_window(
        self, network: NetworkScores | None = None, update: NetworkUpdate | None = None
    ) -> float | None:
        """Fit the head on the window's sessions, then add them to the memories.

        Args:
            network: scores of the network, as `MemoryModel.fit` takes them.
            update: fits the network too, as `MemoryModel.fit` takes it.

        Returns:
            The head's mean loss, None where there was nothing to learn from.
        """
        sessions, self._collected = self.sessions, Collected(len(self.categories))
        loss = self.memory.fit(sessions, self._end, network, update)
        self.read = None
        return loss

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity, the memories, the head, the state of its training, and the network."""
        state = super().state_dict()
        for part, module in (("memory", self.memory), ("network", self.network)):
            state |= {} if module is None else prefixed(module.state_dict(), f"{part}.")
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the whole state; the network has been grown to the state's size.

        Raises:
            ModelFileError: the state's memories have other vocabulary sizes. Any index below these
                is looked up, so they must match the arrays.
        """
        name, wanted = f"{_MEMORIES}sizes", list(self.memory.memories.sizes.values())
        if (found := state[name].tolist()) != wanted:
            raise ModelFileError(f"{name}: expected {wanted}, found {found}")
        super().load_state_dict(state)
        self.memory.load_state_dict(with_prefix(state, "memory."))
        if self.network is not None:
            self.network.load_state_dict(with_prefix(state, "network."))

    def row_rules(self) -> Iterable[Rows]:
        """Return the rules of the memories and of the replayed examples."""
        indices: Limits = (0, self.n_items + N_RESERVED - 1)
        for name, memory in self.memory.memories.memories.items():
            for table in memory.tables:
                rows, columns, values = (
                    f"{_MEMORIES}{name}.{table}.{part}" for part in DecayedTable.parts
                )
                limits = {rows: ROW_KEYS, columns: indices, values: COUNTS}
                yield Rows((rows, columns, values), limits, is_sorted=True)
        names = (f"{_MEMORIES}sessions.{name}" for name in ("items", "offsets", "times", "ids"))
        items, offsets, times, ids = names
        yield Rows((times, ids), {times: TIMES, ids: COUNTS})
        worth = [f"{_MEMORIES}sessions.worth"] if self.memory.settings.has_weights else []
        limits = {items: indices, **dict.fromkeys(worth, COUNTS)}
        yield Rows((items, *worth), limits, offsets=offsets, groups=times)
        if self.tick:
            yield from self._running_rules(indices)
        replayed = ("targets", "weights", "features", "is_candidate", "is_own", "context")
        targets, *others = (f"{_REPLAY}{name}" for name in replayed)
        n_candidates = self.memory.settings.config.n_candidates
        yield Rows((targets, *others), {targets: (-1, n_candidates - 1)})

    def _running_rules(self, indices: Limits) -> Iterator[Rows]:
        """Return the rules of sessions that have not ended."""
        ids, n_counted, offsets = (f"{_RUNNING}{name}" for name in ("ids", "n_counted", "offsets"))
        yield Rows((ids, n_counted), {ids: COUNTS, n_counted: COUNTS})
        for part, first in (("pending", "times"), ("counted", "keys")):
            names = [first, *(name for name in Events._fields if name != first)]
            limits = dict.fromkeys(names, COUNTS)
            limits |= {"items": indices, "pasts": indices, "times": TIMES}
            events = Rows(
                tuple(f"{_RUNNING}{part}.{name}" for name in names),
                {f"{_RUNNING}{part}.{name}": each for name, each in limits.items()},
                is_sorted=True,
            )
            is_grouped = part == "counted"
            yield replace(events, offsets=offsets, groups=ids) if is_grouped else events

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits of times and counts."""
        return {
            **super().limits(),
            f"{_MEMORIES}items.first": (NEVER, LATEST_TIME),
            f"{_MEMORIES}items.latest": (NEVER, LATEST_TIME),
            f"{_MEMORIES}items.counts": COUNTS,
            f"{_MEMORIES}attributes.values": COUNTS,
            f"{_MEMORIES}clock": TIMES,
            "memory.n_fits": COUNTS,
            f"{_HEAD}n_standardised": COUNTS,
            **{f"{_RUNNING}{name}": COUNTS for name in COUNTERS},
        }

    def optional_tensors(self) -> Mapping[str, Tensor]:
        """Return the moments of the head's optimizer, which exist only after a step."""
        return {
            f"{_MOMENTS}{name}.{moment}": torch.zeros(()) if moment == MOMENTS[0] else weight
            for name, weight in self.memory.head.named_parameters()
            for moment in MOMENTS
        }

    def evidence(self) -> dict[str, float]:
        """Return how much each feature raises a score after the last fit."""
        return self.memory.weights()

    def scorer(self, candidates: Int[Tensor, " C"], *, overwrites: bool = False) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices)."""
        few_scores = self._few_scorer(candidates)
        return lambda columns, n_known: few_scores(columns, n_known).dense()

    def session_scorer(
        self, candidates: Int[Tensor, " C"], *, overwrites: bool = False
    ) -> SessionScorer:
        """Return a function that scores candidates and each session's own items.

        Own items that no session had before have no features for the head. Where sessions often end
        with an item they had, they come first, as in the baselines, else last.
        """
        few_scores, candidates = self._few_scorer(candidates), candidates.cpu()
        reminders = self.reminders.after_fit(*self.ends.tolist())

        def scored(columns: Columns, n_known: Int[Tensor, " B"]) -> Scored:
            scores, own = few_scores(columns, n_known), OwnItems.of(columns, n_known, candidates)
            return Scored(scores, own.items * own.is_other, reminders.of_others(scores, own))

        return scored

    def _few_scorer(
        self, candidates: Int[Tensor, " C"]
    ) -> Callable[[Columns, Int[Tensor, " B"]], FewScores]:
        of_prefixes = self.memory.scorer(candidates.cpu().numpy())
        return lambda columns, n_known: of_prefixes(
            self._clicks(columns, n_known), self._network_after(columns, n_known)
        )

    def explain(
        self, columns: Columns, n_known: Int[Tensor, " 1"], items: Ints, candidates: Ints
    ) -> list[dict[str, float]]:
        """Attribute the scores of items, relative to the mean candidate, to the named features.

        Empty where the head does not rank an item (a vocabulary index).
        """
        network = self._network_after(columns, n_known)
        return self.memory.explain(self._clicks(columns, n_known), items, candidates, network)

    def pair_scorer(self) -> PairScorer:
        """Return a function of the decayed sums of pairs, relative to both items' totals."""
        memories = self.memory.memories
        met, totals = memories.pairs.met(memories.n_items + N_RESERVED, memories.moment)

        def scores(items: Ints) -> Floats:
            return associations(met(items), totals[items], totals)[:, N_RESERVED:]

        return scores

    def _network_after(self, columns: Columns, n_known: Int[Tensor, " B"]) -> NetworkScores | None:
        """Return the network's scores after the known events of padded sessions."""
        model = self.network
        if model is None:
            return None

        def scores(positions: Positions, candidates: Int[Tensor, "b C"]) -> Float[Tensor, "b C"]:
            of_rows = {name: values[positions.rows] for name, values in columns.items()}
            wanted = candidates.to(n_known.device)
            return model.scores_at(of_rows, n_known[positions.rows], wanted).cpu()

        return scores

    def _clicks(self, columns: Columns, lengths: Int[Tensor, " B"]) -> Clicks:
        return clicks_of(columns, lengths, self.categories)


def _vectors_read(config: MemoryConfig, statistics: Statistics) -> tuple[str, ...]:
    """Return the names of the items' vectors that memory reads.

    Raises:
        ConfigError: the data set has no such vector.
    """
    known = () if statistics.items is None else tuple(statistics.items.vectors)
    if config.vectors == "all":
        return known
    if unknown := [name for name in config.vectors if name not in known]:
        raise ConfigError(
            f"params.yaml: memory.vectors: {', '.join(unknown)} not among items.vectors of the "
            f"data set ({', '.join(known) or 'it has none'})"
        )
    return config.vectors
