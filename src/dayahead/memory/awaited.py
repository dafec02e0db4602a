"""Awaited examples: prefixes that the head will learn from, as they are read at one tick.

An evaluation reads many of them at the same tick, and what it has read is not read again.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dayahead.core.columns import N_RESERVED
from dayahead.core.ragged import row_of_each
from dayahead.memory.clicks import Clicks, Flags, Ints, among
from dayahead.memory.memories import MEMORIES, Read, Reader
from dayahead.memory.outline import Positions
from dayahead.memory.threads import in_threads

CELLS = 40_000
"""Maximum number of candidates, over all prefixes, that are read at once: bounds memory."""


class AwaitedExamples:
    """P prefixes whose candidates and features are read from the memories as they are now.

    Args:
        positions: of the prefixes.
        prefixes: none empty.
    """

    def __init__(self, positions: Positions, prefixes: Clicks) -> None:
        self.positions = positions
        self.prefixes = prefixes
        self._hashes = prefixes.hashes()
        self._found: list[Read] = []
        self._place = np.full(len(prefixes), -1)
        """[P] row of each prefix in what was found; -1 where it was not found yet."""
        self._n_found = 0

    def offer(self, prefixes: Clicks, found: Read, allowed: Flags) -> None:
        """Keep what an evaluation has read, of those prefixes that are awaited.

        `allowed` says which items could be candidates: all that were clicked before. An item of the
        prefix itself is one for the head even where it is not among them, so that such a prefix is
        left out.
        """
        hashes = prefixes.hashes()
        order = np.argsort(hashes)
        places = order[np.searchsorted(hashes, self._hashes, sorter=order) % len(order)]
        is_same = (hashes[places] == self._hashes) & (self._place < 0)
        is_same &= _are_among(prefixes, allowed)[places]
        [rows] = is_same.nonzero()
        if not _are_equal(self.prefixes.take(rows), prefixes.take(places[rows])):
            return  # two prefixes happen to have the same hash
        self._found.append(Read(*(each[places[rows]] for each in found)))
        self._place[rows] = self._n_found + np.arange(len(rows))
        self._n_found += len(rows)

    def read(self, reader: Reader, cut: Sequence[Ints]) -> Iterator[tuple[Ints, Read]]:
        """Yield parts of the prefixes and what is found there; read what was not found yet."""
        every = [np.concatenate(each) for each in zip(*self._found, strict=True)]

        def read(part: Ints) -> Read:
            places = self._place[part]
            is_missing = places < 0
            found = reader(self.prefixes.take(part[is_missing]))
            if not every or is_missing.all():
                return found
            known = Read(*(each[places[~is_missing]] for each in every))
            return _merged(known, found, is_missing)

        yield from zip(cut, in_threads(read, cut, MEMORIES), strict=True)


def parts(n_rows: int, n_columns: int, n_processes: int = 1) -> list[Ints]:
    """Cut rows into equal parts of at most CELLS cells, as many for each process."""
    most = max(1, CELLS // max(1, n_columns)) * n_processes
    return np.array_split(np.arange(n_rows), max(1, -(-n_rows // most)) * n_processes)


def _merged(known: Read, found: Read, is_found: Flags) -> Read:
    """Return rows in order; those that `is_found` are in the second one."""
    merged = Read(*(np.empty((len(is_found), *each.shape[1:]), each.dtype) for each in found))
    for every, old, new in zip(merged, known, found, strict=True):
        every[~is_found], every[is_found] = old, new
    return merged


def _are_among(rows: Clicks, allowed: Flags) -> Flags:
    """Whether all items of each row, and of its past, are allowed."""
    is_other = (rows.items >= N_RESERVED) & ~among(rows.items, allowed)
    are_among = np.ones(len(rows), bool)
    are_among[row_of_each(rows.lengths)[is_other]] = False
    return are_among if rows.past is None else are_among & _are_among(rows.past, allowed)


def _are_equal(one: Clicks, other: Clicks) -> bool:
    """Whether two have the same rows, each with the same past."""
    names = ("items", "times", "categories", "offsets")
    if not all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names):
        return False
    if one.past is None or other.past is None:
        return one.past is other.past
    return _are_equal(one.past, other.past)
