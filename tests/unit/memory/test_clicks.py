"""Rows of clicks: prefixes, the latest items, the past, an order that is the content's own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks
from support.clicks import (
    clicks,
    positions_of,
    prefixes_of,
    random_clicks,
    seeds,
    sessions_of,
    with_pasts,
)

A, B, C = 2, 3, 4


def test_prefixes_end_before_every_click_but_a_rows_first():
    rows = clicks([[A, B, C], [A], [], [B, A]])
    positions = positions_of(rows)
    assert positions.rows.tolist() == [0, 0, 3]
    assert items_of(rows.prefixes(positions)) == [[A], [A, B], [B]]
    assert rows.following(positions).tolist() == [B, C, A]
    some = positions.take(np.array([2, 1]))
    assert items_of(rows.prefixes(some)) == [[B], [A, B]]
    assert rows.following(some).tolist() == [A, C]
    assert len(positions_of(clicks([])).rows) == 0


def test_the_latest_items_come_first_and_0_fills_up():
    assert clicks([[A, B, C], [A]]).latest(2).tolist() == [[C, B], [A, 0]]
    assert clicks([[], []]).latest(2).tolist() == [[0], [0]]


def items_of(rows):
    return [[item for item, *_ in row] for row in sessions_of(rows)]


def first(*sizes):
    """Flags of the first values of each vocabulary."""
    return [np.arange(12) < N_RESERVED + size for size in sizes]


def test_rows_keep_their_past():
    rows = replace(clicks([[A, B], [C], [B, A]]), past=clicks([[C], [A], [99, B]]))
    assert items_of(rows.take(np.array([2, 0])).past) == [[99, B], [C]]
    prefixes = prefixes_of(rows)
    assert items_of(prefixes.past) == [[C], [99, B]]
    assert items_of(prefixes.known(first(7, 9)).past) == [[C], [0, B]]
    assert items_of(rows.after_past()) == [[C, A, B], [A, C], [99, B, B, A]]
    assert rows.after_past().past is None


def test_what_events_of_the_past_count_is_not_read():
    """With `events.weights` or `events.targets` the past has it too."""
    marks = {"worth": np.array([1.0, 3.0]), "is_target": np.array([True, False])}
    rows = replace(clicks([[A, B]]), past=replace(clicks([[C, A]]), **marks), **marks)
    joined = rows.after_past()
    assert items_of(joined) == [[C, A, A, B]]
    assert joined.worth is None
    assert joined.is_target is None


def test_rows_without_a_past_have_an_empty_one():
    rows = clicks([[A, B], [C]])
    assert rows.past is None
    assert items_of(rows.earlier) == [[], []]
    assert items_of(rows.after_past()) == [[A, B], [C]]
    both = Clicks.cat([rows, replace(rows, past=clicks([[], [B]]))], 1)
    assert items_of(both.past) == [[], [], [], [B]]
    assert Clicks.cat([rows, rows], 1).past is None


def test_values_beyond_a_vocabulary_are_unknown_and_items_0():
    rows = clicks([[A, 1, 9, 0]], categories=[[(4, 2), (5, 0), (3, 9), (0, 1)]])
    known = replace(rows, past=rows).known(first(7, 3, 1))
    for each in (known, known.past):
        assert each.items.tolist() == [A, 0, 0, 0]
        assert each.categories.tolist() == [[4, 2], [1, 0], [3, 1], [0, 1]]
    assert known.known(first(8, 9, 9)).items.tolist() == [A, 0, 0, 0]
    assert rows.known(first(8, 3, 1)).items.tolist() == [A, 0, 9, 0]


def test_rows_are_ordered_by_their_last_time_without_empty_ones():
    rows = clicks([[A, B], [], [C], [A]], times=[[1, 4], [], [2], [3]])
    assert rows.order().tolist() == [2, 3, 0]


def test_the_order_of_a_rows_clicks_counts():
    """All at the same time: only the hash tells the rows apart."""
    rows = clicks([[A, B, C], [C, B, A], [B, A, C]])
    backwards = rows.take(np.array([2, 1, 0]))
    ordered = [list(sessions_of(each.take(each.order()))) for each in (rows, backwards)]
    assert ordered[0] == ordered[1]


@pytest.mark.parametrize("have_past", [False, True])
@given(seeds)
def test_any_permutation_gives_the_same_order(have_past, seed):
    rows = random_clicks(seed, n_sessions=20, n_items=2)
    rows.times[:] = rows.times // 10**9
    rows = with_pasts(rows, seed, n_items=2) if have_past else rows
    shuffled = rows.take(np.random.default_rng(seed).permutation(20))
    ordered = [
        list(sessions_of(part))
        for each in (rows, shuffled)
        for part in (each.take(each.order()), each.take(each.order()).earlier)
    ]
    assert ordered[:2] == ordered[2:]


def test_rows_that_differ_in_their_past_alone_have_one_order():
    rows = replace(clicks([[A, B]] * 4), past=clicks([[], [A], [B], [A, B]]))
    backwards = rows.take(np.array([3, 2, 1, 0]))
    ordered = [items_of(each.take(each.order()).past) for each in (rows, backwards)]
    assert ordered[0] == ordered[1]
