"""Pair memory: decayed counts of how often item b followed, or occurred with, item a."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from dayahead.core.columns import N_RESERVED
from dayahead.core.ragged import step_of_each
from dayahead.memory.candidates import Proposal
from dayahead.memory.cells import Buffers, SortedCells, n_parts, written
from dayahead.memory.clicks import Clicks, Columns, Flags, Floats, Floats32, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.evidence import CountMemory, channels, log_share, middle, of
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Lookup, Moment, Sums
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import DecayedTable

KINDS = ("next", "first", "end", "forward", "backward")
"""What a channel counts of items a -> b:

next      b is the click after a
first     as next, and a is the session's first click
end       as next, and b is the session's last click
forward   b comes after a, with weight 1 / distance
backward  b comes before a, with weight 1 / distance
"""
REACH = 20
"""Largest distance of a pair, in clicks, and the number of a prefix's last clicks that are read."""
FADE = 0.5
"""Weight of each click of a prefix, relative to the click after it."""
SHARES = {"next": 0.5, "forward": 0.15, "backward": 0.05}
"""Weight of each kind, all half-lives alike, in the mixture that chooses candidates."""
DOUBT = 3.0
"""Prior count of a row in this mixture: a row with a total of this gets half of its share."""


class PairMemory(CountMemory):
    """Decayed counts of item pairs, by (a, b).

    Forward and backward are summed over a prefix; the other kinds are read at its last click.
    """

    name = "pairs"
    is_share = True

    def __init__(self, settings: MemorySettings) -> None:
        self.channels = channels(**{kind: settings.half_lives(f"pair_{kind}") for kind in KINDS})
        self.names = tuple(f"pair.{channel.name}" for channel in self.channels)
        half_lives = tuple(channel.half_life.windows for channel in self.channels)
        self.n_masses = len(self.names)
        self.table = DecayedTable(
            half_lives, is_live=settings.tick > 0, n_most=settings.config.max_pairs
        )
        self.tables = {"counts": self.table}
        self.prior: Floats32 = np.array([1 if each < 1 else 3 for each in half_lives], np.float32)
        self.base = middle(self.channels, "next")
        """The channel with which the transitions of a category are compared."""
        kinds = [channel.kind for channel in self.channels]
        self._kind_of = np.array([KINDS.index(kind) for kind in kinds])
        self._is_backward = np.array([kind == "backward" for kind in kinds])
        is_summed = np.isin(kinds, ["forward", "backward"])
        weights = np.where(is_summed, FADE ** np.arange(REACH)[:, None], np.eye(REACH, 1))
        self._weights: Floats32 = weights.astype(np.float32)
        """[REACH, K] weights of a prefix's clicks, the last one first."""
        self._mixed = np.array([k for kind in SHARES for k in of(self.channels, kind)])
        shares = [SHARES[kinds[k]] / kinds.count(kinds[k]) for k in self._mixed]
        of_clicks = self._weights[:2, self._mixed] * np.array(shares, np.float32)
        self._mixed_weights = np.ascontiguousarray(of_clicks)
        """[2, M] weights of the last click, and of the click before it."""

    def add(self, growth: Growth, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add new clicks; all clicks are `ages` windows old."""
        decays = 2.0 ** (-ages[:, None] / self.table.half_lives)  # [N, K]
        cells = _cells(_pairs(growth), decays, self._kind_of, self._is_backward)
        self.table.merge(cells, elapsed)

    def lookups(self, prefixes: Clicks, now: Moment) -> list[Lookup]:
        """Return the rows of the last clicks."""
        rows = prefixes.latest(REACH)
        return [self.table.lookup(rows, self._weights[: rows.shape[1]], now)]

    def propose(self, lookups: Sequence[Lookup]) -> list[Proposal]:
        """Propose what followed, preceded and came later."""
        steps = np.arange(REACH)
        weights_of = np.minimum(steps, 1)
        fades = (FADE ** (steps - weights_of)).astype(np.float32)
        found = []
        for levels, rows, _ in lookups:
            n = rows.shape[1]
            of_rows = self._mixed_weights, weights_of[:n], fades[:n]
            found.append(Proposal(levels, rows, *of_rows, self._mixed, DOUBT))
        return found

    def met(self, n: int, now: Moment) -> tuple[Callable[[Ints], Floats], Floats]:
        """Return how often items, vocabulary indices below `n`, came before or after others.

        Sums of 1 / distance over pairs in the channels with the middle half-life.

        Returns:
            A function from items [Q] to their sums [Q, n] with every index, and the totals [n].
        """
        channels = [middle(self.channels, kind) for kind in ("forward", "backward")]
        ones = np.ones((1, len(self.channels)), np.float32)
        every = np.arange(n)

        def sums(rows: Ints, columns: Columns) -> Sums:
            return self.table.lookup(rows[:, None], ones, now).sums(columns, n)

        def met(items: Ints) -> Floats:
            found = np.zeros((len(items), n))
            # One by one: all channels of all items would take much memory.
            for row, item in zip(found, items, strict=True):
                counts = sums(np.array([item]), every[None].astype(np.int32)).counts
                row[:] = counts[0][:, channels].sum(1, dtype=np.float64)
            return found

        masses = sums(every, np.zeros((n, 0), np.int32)).masses
        return met, masses[:, channels].sum(-1, dtype=np.float64)

    def after_last(self, sums: Sums) -> Sums:
        """Return the sums of one channel: the clicks after the last item."""
        return Sums(sums.counts[..., [self.base]], sums.masses[:, [self.base]])

    def transitions(self, after_last: Sums, popularity: Floats32) -> Floats32:
        """Return the share [B, C, 1] of each candidate in the clicks after the last item."""
        shares: Floats32 = np.exp(log_share(after_last, popularity, self.prior[[self.base]]))
        return shares


class Pairs(NamedTuple):
    """P pairs of clicks of the same session, one after the other."""

    before: Ints
    """[P] the earlier click."""
    after: Ints
    """[P] the later one."""
    kinds: Floats
    """[P, kinds] weight of the pair in each of KINDS."""
    items: Ints
    """[N] item of each click."""
    worth: Floats
    """[N] what each click counts."""


def _pairs(growth: Growth) -> Pairs:
    """Return the pairs that are to be counted."""
    sessions = growth.sessions
    clicks = np.arange(len(sessions.items))
    n_after = np.minimum(sessions.offsets[1:].repeat(sessions.lengths) - clicks - 1, REACH)
    before, distances = clicks.repeat(n_after), step_of_each(n_after) + 1
    after = before + distances
    is_known = (sessions.items[before] >= N_RESERVED) & (sessions.items[after] >= N_RESERVED)
    is_counted = is_known & (growth.is_new | growth.is_end)[after]
    before, after, distances = before[is_counted], after[is_counted], distances[is_counted]
    is_new, is_end = growth.is_new[after], (distances == 1) & growth.is_end[after]
    is_next = (distances == 1) & is_new
    is_first = is_next & np.isin(before, sessions.offsets[:-1])
    met = is_new / distances
    kinds = np.stack([is_next, is_first, is_end, met, met], axis=1)
    worth = np.broadcast_to(sessions.worth_of(clicks), len(clicks))
    return Pairs(before, after, kinds, sessions.items, np.ascontiguousarray(worth))


def _cells(pairs: Pairs, decays: Floats, kind_of: Ints, is_backward: Flags) -> SortedCells:
    """Return the sums over pairs: backward channels under (b, a), the others under (a, b).

    Memory is 80 bytes per pair, besides the sums.
    """
    before, after = pairs.items[pairs.before], pairs.items[pairs.after]
    parts = _ordered_parts(np.append(before, after), np.append(after, before))
    sizes = [*map(len, parts)]
    return written(
        Buffers.of(sum(sizes), len(kind_of), np.float64),
        sizes,
        lambda part, sums: _sum_pairs(parts[part], pairs, decays, kind_of, is_backward, sums),
    )


def _ordered_parts(rows: Ints, columns: Ints) -> list[Ints]:
    """Return the order by row and column, with whole rows for each thread."""
    order, starts = _order(rows, columns)
    n = n_parts(len(order), torch.get_num_threads())
    wanted = np.arange(1, n) * len(order) // n
    return np.split(order, starts[np.searchsorted(starts, wanted, side="right") - 1])


# A radix sort whose digits are items: four times as fast as np.lexsort for two million pairs.
@compiled
def _order(rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
    """Return the order by row and column, and where each row starts; equal ones stay in theirs."""
    order = np.arange(len(rows))
    ends = np.zeros(0, np.int64)
    for keys in (columns, rows):
        ends = np.bincount(keys).cumsum()
        found = np.empty_like(order)
        for i in order[::-1]:
            ends[keys[i]] -= 1
            found[ends[keys[i]]] = i
        order = found
    return order, ends


@compiled
def _sum_pairs(
    order: Ints, pairs: Pairs, decays: Floats, kind_of: Ints, is_backward: Flags, sums: Buffers
) -> int:
    # Names of their own, as Numba counts a reference each time that a tuple's array is read.
    before, after, kinds, items, worth = pairs
    rows, columns, values = sums
    end = 0
    for i in order:
        is_reverse = i >= len(before)
        pair = i - len(before) if is_reverse else i
        click, later = before[pair], after[pair]
        # An item counts what its own click is worth, whichever of the two it is.
        row, column, counts = items[click], items[later], worth[later]
        if is_reverse:
            row, column, counts = column, row, worth[click]
        if end == 0 or row != rows[end - 1] or column != columns[end - 1]:
            rows[end], columns[end] = row, column
            values[end] = 0.0
            end += 1
        for k in range(len(kind_of)):
            if is_backward[k] == is_reverse:
                values[end - 1, k] += kinds[pair, kind_of[k]] * decays[later, k] * counts
    return end
