"""What an evaluation reads of awaited prefixes is taken over where a fit would read the same."""

import numpy as np

from dayahead.memory.awaited import AwaitedExamples
from dayahead.memory.memories import Read
from dayahead.memory.outline import Positions
from support.clicks import clicks

A, B, C, D = range(2, 6)
ALLOWED = np.isin(np.arange(6), [A, B, C])


def read_of(prefixes, value):
    """A reading with one candidate, the last item, whose features all have this value."""
    n, last = len(prefixes), prefixes.items[prefixes.offsets[1:] - 1, None]
    features, context = (np.full(shape, value, np.float32) for shape in ((n, 1, 2), (n, 3)))
    return Read(last.astype(np.int32), features, np.ones((n, 1), bool), context)


def awaited_values(rows, *offers):
    """The last item and the value found for each awaited row, 0 where it was read afresh."""
    awaited = AwaitedExamples(Positions(np.arange(len(rows)), np.arange(len(rows))), clicks(rows))
    for value, offered in enumerate(offers, start=1):
        awaited.offer(clicks(offered), read_of(clicks(offered), value), ALLOWED)
    every = np.arange(len(rows))
    [(part, found)] = awaited.read(lambda prefixes: read_of(prefixes, 0), [every])
    assert np.array_equal(part, every)
    assert np.unique(found.context, axis=1).tolist() == found.context[:, :1].tolist()
    return [*zip(found.candidates[:, 0].tolist(), found.features[:, 0, 0].tolist(), strict=True)]


def test_what_was_read_is_not_read_again():
    rows = [[A, B], [C], [B]]
    assert awaited_values(rows) == [(B, 0), (C, 0), (B, 0)]
    assert awaited_values(rows, [[C], [A]], [[B, A], [A, B], [C]]) == [(B, 2), (C, 1), (B, 0)]


def test_a_prefix_with_an_item_that_was_no_candidate_is_read_again():
    rows = [[A, D], [D, B], [A, 1], [A]]
    assert awaited_values(rows, rows) == [(D, 0), (B, 0), (1, 1), (A, 1)]
