"""Length groups against every way to cut a few rows between equal parts."""

import math
from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.length_groups import CUTS_PER_GROUP, group_sizes

rows = st.lists(st.integers(0, 9), min_size=1, max_size=40)


def n_positions(lengths, sizes):
    return sum(len(part) * max(1, *part.tolist()) for part in torch.tensor(lengths).split(sizes))


def every_cut(n_rows, n_groups):
    step = math.ceil(n_rows / (CUTS_PER_GROUP * n_groups)) if n_groups > 1 else n_rows
    ends = range(step, n_rows, step)
    for n_cuts in range(min(n_groups - 1, len(ends)) + 1):
        for cuts in combinations(ends, n_cuts):
            yield [end - start for start, end in zip((0, *cuts), (*cuts, n_rows), strict=True)]


@given(rows.map(sorted), st.integers(1, 5))
def test_no_other_groups_have_fewer_positions(lengths, n_groups):
    sizes = group_sizes(torch.tensor(lengths), n_groups)
    assert len(sizes) <= n_groups
    every = [n_positions(lengths, each) for each in every_cut(len(lengths), n_groups)]
    assert n_positions(lengths, sizes) == min(every)


@given(rows, st.integers(1, 12))
def test_rows_in_any_order_are_in_one_group_each(lengths, n_groups):
    sizes = group_sizes(torch.tensor(lengths), n_groups)
    assert sum(sizes) == len(lengths)
    assert 0 < len(sizes) <= n_groups
    assert min(sizes) > 0


def test_rows_of_one_length_are_one_group():
    assert group_sizes(torch.full((8,), 5), 4) == [8]


def test_batches_share_their_shapes():
    rng = torch.Generator().manual_seed(1)
    shapes = set()
    for _ in range(200):
        lengths = torch.randint(1, 21, (256,), generator=rng).sort().values
        sizes = group_sizes(lengths, 4)
        widths = [int(part.max()) for part in lengths.split(sizes)]
        shapes |= set(zip(sizes, widths, strict=True))
    assert {n_rows % 32 for n_rows, _ in shapes} == {0}
    assert len(shapes) < 60  # cut between any rows: over 300
