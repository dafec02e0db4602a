"""Rows of clicks: prefixes, the latest items, an order that is the content's own."""

import numpy as np
from hypothesis import given

from support.clicks import clicks, random_clicks, seeds, sessions_of

A, B, C = 2, 3, 4


def test_a_prefix_is_a_row_without_its_last_click():
    prefixes, targets = clicks([[A, B, C], [A], [B, A]]).prefixes()
    assert [[item for item, *_ in row] for row in sessions_of(prefixes)] == [[A, B], [B]]
    assert targets.tolist() == [C, A]


def test_the_latest_items_come_first_and_0_fills_up():
    assert clicks([[A, B, C], [A]]).latest(2).tolist() == [[C, B], [A, 0]]


def test_items_beyond_the_catalogue_and_reserved_ones_are_0():
    assert clicks([[A, 1, 99, 0]]).known(10).items.tolist() == [A, 0, 0, 0]


def test_rows_are_ordered_by_their_last_time_without_empty_ones():
    rows = clicks([[A, B], [], [C], [A]], times=[[1, 4], [], [2], [3]])
    assert rows.order().tolist() == [2, 3, 0]


def test_the_order_of_a_rows_clicks_counts():
    """All at the same time: only the hash tells the rows apart."""
    rows = clicks([[A, B, C], [C, B, A], [B, A, C]])
    backwards = rows.take(np.array([2, 1, 0]))
    ordered = [list(sessions_of(each.take(each.order()))) for each in (rows, backwards)]
    assert ordered[0] == ordered[1]


@given(seeds)
def test_any_permutation_gives_the_same_order(seed):
    rows = random_clicks(seed, n_sessions=20, n_items=2)
    rows.times[:] = rows.times // 10**9
    shuffled = rows.take(np.random.default_rng(seed).permutation(20))
    ordered = [list(sessions_of(each.take(each.order()))) for each in (rows, shuffled)]
    assert ordered[0] == ordered[1]
