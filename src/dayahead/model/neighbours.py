"""Session neighbours: SKNN, V-SkNN, STAN and VSTAN, by arithmetic on whole batches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Int
from scipy.sparse import coo_array, csc_array, csr_array, vstack
from torch import Tensor

from dayahead.config.baselines import Decay, NeighbourConfig
from dayahead.config.model import ModelSections
from dayahead.core.columns import DAY, EVENT_TIME, ITEM_ID, N_RESERVED
from dayahead.core.ragged import offsets_of, ranges, row_of_each
from dayahead.metrics.scores import Scores, SharedScores, scores_of_cells
from dayahead.model.counting import Baseline
from dayahead.model.model import Floats, Ints, PairScorer, associations
from dayahead.model.output_layer import Columns
from dayahead.model.own_items import MethodScorer
from dayahead.model.state_rules import COUNTS, TIMES, Limits, Rows
from dayahead.model.visits import Occurrences, Visits, from_end

PAIRS = 4_000_000
"""Maximum number of (item of a session, earlier session) pairs held at once: bounds memory."""


@dataclass(frozen=True)
class Weights:
    """The factors of a score; depending on the variant, some of them are 1."""

    config: NeighbourConfig
    variant: str
    """sknn, vsknn, stan or vstan."""

    @property
    def is_vector(self) -> bool:
        """Whether the variant is V-SkNN, whose weights are named functions."""
        return self.variant == "vsknn"

    @property
    def has_scales(self) -> bool:
        """Whether weights fall exponentially, as in STAN."""
        return self.variant in {"stan", "vstan"}

    @property
    def idf(self) -> float:
        """Weight of the inverse frequency of an item."""
        return self.config.idf if self.variant in {"vsknn", "vstan"} else 0.0

    def position(self, positions: Ints, lengths: Ints) -> Floats:
        """Weight of a session's events by their positions, from 1."""
        if self.has_scales:
            return np.asarray(np.exp((positions - lengths) / self.config.position_scale))
        name: Decay = self.config.position_weight if self.is_vector else "same"
        if name in {"div", "quadratic"}:
            return np.asarray((positions / lengths) ** (1 if name == "div" else 2))
        return _falling(name, lengths - positions + 1, first=1)

    def step(self, steps: Ints) -> Floats:
        """Weight of neighbours by the last shared item's position from the end, counted from 1."""
        if self.variant == "vstan":
            return np.asarray(np.exp((1 - steps) / self.config.step_scale))
        return _falling(self.config.step_weight if self.is_vector else "same", steps, first=0)

    def age(self, ages: Ints) -> Floats:
        """Weight of earlier sessions by their age, microseconds."""
        scale = self.config.age_scale * DAY
        return np.exp(-ages / scale) if self.has_scales else np.ones(len(ages))

    def distance(self, distances: Ints) -> Floats:
        """Weight of a neighbour's items by their distance from the last shared one."""
        scale = self.config.distance_scale
        return np.exp(-distances / scale) if self.has_scales else np.ones(len(distances))


def _falling(name: Decay, steps: Ints, first: int) -> Floats:
    """V-SkNN's functions of steps from the end, counted from 1.

    `first` is where linear and log start: in the authors' code it differs between the weights of
    positions and those of steps.
    """
    match name:
        case "linear":
            return np.asarray(np.maximum(1 - 0.1 * (steps - first), 0))
        case "log":
            return np.asarray(1 / np.log10(steps - first + 1.7))
        case "div":
            return 1 / steps
        case "quadratic":
            return 1 / np.square(steps)
        case "same":
            return np.ones(len(steps))


class NeighbourModel(Baseline):
    """Scores items by the earlier sessions that are most like this one.

    Neighbours are the `k` most similar among the `sample_size` newest sessions that share an item
    with the session; of equal similarity the newer ones. An item's score is a sum over those that
    hold it. Items of no neighbour rank below, by popularity. Sessions of all fits take part.

    sknn   cosine of the sets of items (Jannach and Ludewig, RecSys 2017)
    vsknn  later events of the session weigh more (Ludewig and Jannach, UMUAI 2018)
    stan   so do newer sessions, and items near the last shared one (Garg et al., SIGIR 2019)
    vstan  all of these (Ludewig et al., UMUAI 2021)
    """

    pairs_are = "cosine of the sets of sessions that hold the items"

    def __init__(self, config: NeighbourConfig, variant: str) -> None:
        super().__init__()
        self.config = config
        self.weights = Weights(config, variant)
        self.visits = Visits.none()
        self.events = np.zeros(0, np.int64)
        """[n_items] events of each item over all fits."""
        self.n_sessions = 0
        """Number of sessions over all fits."""
        self._end = 0
        self._new: list[Visits] = []

    @classmethod
    def build(cls, settings: ModelSections) -> "NeighbourModel":
        """Build it from its settings."""
        return cls(settings.neighbours, settings.model.architecture)

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the counts to the first `sizes[item_id]` items of the catalogue."""
        super().grow(sizes)
        self.events = np.pad(self.events, (0, self.n_items - len(self.events)))

    def start_window(self, end: int) -> None:
        """Reset the popularity. The window ends at `end`, microseconds since 1970."""
        super().start_window(end)
        self._end = end

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Count train sessions: right-padded columns [B, L].

        A session that runs past its window (`window.overrun: keep`) counts as ending with it:
        otherwise all others would be weeks old compared with it.
        """
        super().count(columns, lengths)
        found = Occurrences.of((columns[ITEM_ID] - N_RESERVED).numpy(), lengths.numpy())
        # Not the popularity, which sums up what events are worth: that may be below 1, even 0.
        events = np.bincount(found.item, found.count, minlength=self.n_items)
        self.events += events.astype(np.int64)
        last = columns[EVENT_TIME].gather(1, lengths[:, None] - 1)[:, 0].numpy()
        times = np.minimum(last, self._end)
        offsets = offsets_of(np.bincount(found.row, minlength=len(times)))
        self._new.append(Visits(times, offsets, found.item, found.last))

    def finish_window(self) -> float | None:
        """Add the window's sessions to the earlier ones; drop those that no search can find."""
        self.n_sessions += sum(len(part.times) for part in self._new)
        visits = Visits.join([self.visits, *self._new])
        self._new.clear()
        self.visits = visits.newest(self.config.sample_size)
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity, the sessions kept, and the counts behind inverse frequencies."""
        arrays = {each.name: getattr(self.visits, each.name) for each in fields(Visits)}
        arrays |= {"events": self.events, "n_sessions": np.array([self.n_sessions])}
        return super().state_dict() | {n: torch.from_numpy(each) for n, each in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all sessions."""
        super().load_state_dict(state)
        self.visits = Visits(*(state[each.name].numpy() for each in fields(Visits)))
        self.events = state["events"].numpy()
        self.n_sessions = int(state["n_sessions"])

    def row_rules(self) -> Iterable[Rows]:
        """Return the rules of the sessions."""
        yield Rows(("times",), {"times": TIMES}, is_sorted=True)
        limits = {"items": (0, self.n_items - 1), "positions": (1, np.iinfo(np.int32).max)}
        yield Rows(("items", "positions"), limits, offsets="offsets", groups="times")

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits of the counts."""
        return {**super().limits(), "events": COUNTS, "n_sessions": COUNTS}

    def pair_scorer(self) -> PairScorer:
        """Return a function of the cosine of the sets of kept sessions that hold each item."""
        visits = self.visits
        shape = len(visits.times), self.n_items
        held = csc_array((np.ones(len(visits.items)), (visits.sessions, visits.items)), shape)
        totals = np.bincount(visits.items, minlength=self.n_items).astype(np.float64)

        def scores(items: Ints) -> Floats:
            rows = items - N_RESERVED
            return associations((held[:, rows].T @ held).toarray(), totals[rows], totals)

        return scores

    def method_scorer(self, candidates: Int[Tensor, " C"]) -> MethodScorer:
        """Return a function that scores the candidates (vocabulary indices).

        Items of neighbours score above 0, at most 1; the others below 0, by popularity.
        """
        rows = candidates.cpu().numpy() - N_RESERVED
        column_of = np.full(self.n_items, -1)
        column_of[rows] = np.arange(len(rows))
        fallback = SharedScores(self.fallback(rows) - 1)

        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Scores:
            items, lengths = columns[ITEM_ID].cpu().numpy() - N_RESERVED, n_known.cpu().numpy()
            size = max(1, PAIRS // (self.config.sample_size * items.shape[1]))
            parts = [slice(start, start + size) for start in range(0, max(1, len(items)), size)]
            found = vstack([self._cells(items[part], lengths[part], column_of) for part in parts])
            # Items of neighbours get scores in (0, 1], above all fallback scores.
            values = torch.from_numpy(found.data.astype(np.float32))
            return scores_of_cells(fallback, len(items), found.tocoo().coords, values)

        return scores

    def _cells(self, items: Ints, lengths: Ints, column_of: Ints) -> csr_array:
        """Score the neighbours' items of padded sessions [B, L], the best of each row as 1."""
        own = Occurrences.of(np.where(items < self.n_items, items, -1), lengths)
        rows, sessions, weights, anchors = self._neighbours(own, lengths)
        counts = self.visits.counts[sessions]
        visit, pair = ranges(self.visits.offsets[sessions], counts), row_of_each(counts)
        row, item = rows[pair], self.visits.items[visit]
        distances = np.abs(self.visits.positions[visit] - anchors[pair])
        values = weights[pair] * self.weights.distance(distances)
        if self.weights.idf:
            values *= 1 + self.weights.idf * np.log(self.n_sessions / self.events[item])
        if self.weights.is_vector and self.config.push_reminders:
            values *= self._reminder(own, row * self.n_items + item)
        is_scored = (column_of[item] >= 0) & (values > 0)
        at = (row[is_scored], column_of[item[is_scored]])
        shape = (len(items), column_of.max(initial=-1) + 1)
        cells = coo_array((values[is_scored], at), shape).tocsr()
        if cells.nnz:
            highest = cells.max(axis=1).toarray()
            cells.data /= highest.repeat(np.diff(cells.indptr))
        return cells

    def _reminder(self, own: Occurrences, keys: Ints) -> Floats:
        """Factor of items, given as row * n_items + item, by their events in their session."""
        factors = np.ones(len(keys))
        known = own.row * self.n_items + own.item  # ascending
        index = np.searchsorted(known, keys)
        # searchsorted returns len(known) for a key above all; the -1 appended equals no key.
        is_own = np.append(known, -1)[index] == keys
        factors[is_own] += own.count[index[is_own]]
        return factors

    def _neighbours(self, own: Occurrences, lengths: Ints) -> tuple[Ints, Ints, Floats, Ints]:
        """Find the neighbours of sessions with these items.

        Returns:
            Of each pair of a session to continue and a neighbour: the row of the former, the number
            of the latter, its weight, and the position in it of the last item they share, from 1.
        """
        visits, items = self.visits.by_item
        ends = np.searchsorted(items, own.item, "right")
        starts = np.searchsorted(items, own.item, "left")
        starts = np.maximum(starts, ends - self.config.sample_size)
        index, entry = ranges(starts, ends - starts), row_of_each(ends - starts)
        visit = visits[index]
        # An entry for each shared item; those of a pair of sessions become neighbours here.
        # One integer for each pair of row and session, by which entries are sorted and grouped.
        pairs = own.row[entry] * len(self.visits.times) + self.visits.sessions[visit]
        order = np.argsort(pairs, kind="stable")
        pairs, visit, entry = pairs[order], visit[order], entry[order]
        first = np.flatnonzero(np.diff(pairs, prepend=-1))
        row, session = np.divmod(pairs[first], max(1, len(self.visits.times)))
        similarity = np.add.reduceat(
            self.weights.position(own.last, lengths[own.row])[entry], first
        )
        if not self.weights.is_vector:  # the norm of the session to continue changes no order
            similarity /= np.sqrt(self.visits.counts[session])
        # A slice, not [-1]: there may be no session yet.
        similarity *= self.weights.age(self.visits.times[-1:] - self.visits.times[session])
        last = np.maximum.reduceat(own.last[entry], first)
        anchor = np.maximum.reduceat(self.visits.positions[visit], first)
        chosen = self._most_similar(row, session, similarity)
        weight = similarity * self.weights.step(lengths[row] - last + 1)
        return row[chosen], session[chosen], weight[chosen], anchor[chosen]

    def _most_similar(self, row: Ints, session: Ints, similarity: Floats) -> Ints:
        """Choose each row's neighbours; rows ascend, and sessions in a row."""
        # Sessions are numbered by time: the last ones of a row are the newest.
        recent = np.flatnonzero(from_end(row) < self.config.sample_size)
        order = np.lexsort((session[recent], similarity[recent], row[recent]))
        is_chosen = from_end(row[recent][order]) < self.config.k
        return np.asarray(recent[order][is_chosen])
