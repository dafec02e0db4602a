"""Length groups against every way to cut a few rows."""

from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.length_groups import group_sizes

rows = st.lists(st.integers(0, 9), min_size=1, max_size=9)


def n_positions(lengths, sizes):
    return sum(len(part) * max(1, *part.tolist()) for part in torch.tensor(lengths).split(sizes))


def every_cut(n_rows, n_groups):
    for n_cuts in range(min(n_groups, n_rows)):
        for cuts in combinations(range(1, n_rows), n_cuts):
            yield [end - start for start, end in zip((0, *cuts), (*cuts, n_rows), strict=True)]


@given(rows.map(sorted), st.integers(1, 12))
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
