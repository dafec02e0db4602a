"""Sparse sums: decay by hand, merging against dictionaries, pruning at the floor, reading."""

import numpy as np
import pytest
import torch
from hypothesis import given

from dayahead.core.ragged import offsets_of
from dayahead.memory import table as tables
from dayahead.memory.cells import Cells, no_cells
from dayahead.memory.lookup import Level, Lookup, Moment
from dayahead.memory.table import DecayedTable
from support.clicks import seeds

A, B, C = 2, 3, 4


def add(table, cells, elapsed=0.0):
    rows, columns = (np.array([key[i] for key, _ in cells], np.int64) for i in (0, 1))
    values = np.array([value for _, value in cells], float).reshape(
        len(cells), len(table.half_lives)
    )
    table.add(rows, columns, values, elapsed)


def contents(table):
    table.compact()
    rows = table.cells.rows.repeat(np.diff(table.cells.offsets)).tolist()
    keys = zip(rows, table.cells.columns.tolist(), strict=True)
    return dict(zip(keys, table.cells.values.tolist(), strict=True))


def test_a_channel_halves_in_its_half_life():
    table = DecayedTable((1.0, 2.0))
    add(table, [((A, B), [8, 8])])
    add(table, [((A, B), [1, 1]), ((B, A), [3, 3])], elapsed=2)
    assert contents(table) == {(A, B): [8 / 4 + 1, 8 / 2 + 1], (B, A): [3, 3]}


def test_a_cell_goes_once_all_its_channels_are_at_the_floor():
    """After k windows .5^k and .5^(k/2) are left: .0156 and .125, at last .0002 and .0156."""
    table = DecayedTable((1.0, 2.0))
    add(table, [((A, B), [1, 1])])
    add(table, [], elapsed=6)
    assert contents(table) == {(A, B): [2**-6, 2**-3]}
    add(table, [], elapsed=6)
    assert contents(table) == {}
    assert table.cells.masses.shape == (0, 2)


@given(seeds)
def test_merging_agrees_with_a_dictionary(seed):
    dice, table, wanted = np.random.default_rng(seed), DecayedTable((1.0, 4.0)), {}
    for elapsed in (0.0, 0.5, 0.25):
        size = dice.integers(0, 30)
        keys = [tuple(key) for key in dice.integers(2, 6, (size, 2)).tolist()]
        cells = [(key, dice.random(2) + 1) for key in keys]
        factors = 0.5 ** (elapsed / table.half_lives)
        wanted = {key: value * factors for key, value in wanted.items()}
        for key, value in cells:
            wanted[key] = wanted.get(key, 0) + value
        add(table, cells, elapsed)
    assert list(contents(table)) == sorted(wanted)
    for key, value in contents(table).items():
        assert value == pytest.approx(wanted[key], rel=1e-6)


def test_rows_are_read_at_the_candidates_and_summed_with_their_weights():
    table = DecayedTable((1.0, 1.0))
    add(table, [((A, B), [1, 10]), ((A, C), [2, 20]), ((B, C), [4, 40])])
    weights = np.array([[1, 0.5], [0, 0.5]], np.float32)
    candidates = np.array([[C, B, 0], [B, 7, C]], np.int32)
    rows = np.array([[A, B], [C, 99]])
    sums = table.lookup(rows, weights, Moment(0)).sums(candidates, 8)
    assert sums.counts.tolist() == [[[2, 30], [1, 5], [0, 0]], [[0, 0]] * 3]
    assert sums.masses.tolist() == [[3, 35], [0, 0]]


@pytest.mark.parametrize("n_items", [9, 400])
@given(seed=seeds)
def test_every_prefix_reads_the_sums_of_its_rows(n_items, seed):
    """Also where prefixes share rows, where a row has no cell, and where long rows are searched."""
    dice = np.random.default_rng(seed)
    dense = dice.integers(0, 3, (6, n_items, 2)).astype(np.float32)
    dense[dice.random((6, n_items)) < 0.5] = 0
    dense[dice.integers(6)] = 0
    rows, columns = dense.any(2).nonzero()
    lengths = np.bincount(rows, minlength=6)
    cells = Cells(
        np.arange(6),
        offsets_of(lengths),
        columns.astype(np.int32),
        dense[rows, columns],
        dense.sum(1),
    )
    wanted, weights = dice.integers(0, 8, (7, 3)), np.ones((3, 2), np.float32)
    weights *= 2.0 ** -np.arange(3, dtype=np.float32)[:, None]
    candidates = np.array([dice.permutation(n_items)[:4] for _ in range(7)], np.int32)
    ones = np.ones(2, np.float32)
    levels = Level(cells, ones), Level(cells, 2 * ones), Level(no_cells(1), ones)
    sums = Lookup(levels, wanted, weights).sums(candidates, n_items)
    missing = np.zeros((2, n_items, 2), np.float32)
    known = np.concatenate([dense, missing])[wanted] * weights[:, None]
    every = 3 * known.sum(1)  # [B, n, K], exact in float32
    found = np.take_along_axis(every, candidates[..., None], axis=1) * (candidates > 0)[..., None]
    assert np.array_equal(sums.counts, found)
    assert np.array_equal(sums.masses, every.sum(1))


def test_rows_are_read_as_they_have_decayed_since_they_were_written():
    table = DecayedTable((1.0, 2.0))
    add(table, [((A, B), [8, 8])])
    row, weight = np.array([[A]]), np.ones((1, 2), np.float32)
    sums = table.lookup(row, weight, Moment(0, since=2.0)).sums(np.array([[B]], np.int32), 8)
    assert sums.counts.tolist() == [[[2, 4]]]
    assert sums.masses.tolist() == [[2, 4]]


@pytest.mark.parametrize("is_live", [False, True])
def test_where_there_are_too_many_cells_those_with_the_lowest_values_go(is_live):
    table = DecayedTable((1.0, 2.0), is_live=is_live, n_most=2)
    add(table, [((A, B), [3, 1]), ((A, C), [1, 4]), ((B, C), [2, 2])])
    assert contents(table).keys() == {(A, B), (A, C)}
    add(table, [((C, A), [9, 9])], elapsed=1.0)
    assert contents(table).keys() == {(A, C), (C, A)}


def test_two_levels_hold_what_one_does():
    """However much is in the second level, counts are those of a table that is rebuilt."""
    dice = np.random.default_rng(0)
    one, two = DecayedTable((1.0, 4.0)), DecayedTable((1.0, 4.0), is_live=True)
    candidates = np.arange(2, 12, dtype=np.int32)[None]
    weights = np.ones((10, 2), np.float32)
    n_levels = set()
    for _ in range(30):
        rows, columns = dice.integers(2, 12, (2, 40 if len(one) == 0 else 1))
        values = dice.random((len(rows), 2)) + 1
        for table in (one, two):
            table.add(rows, columns, values, 0.1)
        one.compact()
        n_levels.add(len(two.recent.rows) > 0)
        now = Moment(0, since=0.5)
        found = [
            table.lookup(candidates.astype(int), weights, now).sums(candidates, 12)
            for table in (one, two)
        ]
        for each, other in zip(*found, strict=True):
            assert each == pytest.approx(other, rel=1e-5)
    assert n_levels == {True, False}
    assert contents(two).keys() == contents(one).keys()
    for key, value in contents(two).items():
        assert value == pytest.approx(contents(one)[key], rel=1e-5)


def test_parts_of_a_window_do_not_rebuild_a_large_table_each_time(monkeypatch):
    """Ten parts of 10 cells beside 1,000: one rebuilding, which `compact` asks for."""
    rebuilt = []
    move = DecayedTable._move
    monkeypatch.setattr(
        DecayedTable, "_move", lambda self, waits: rebuilt.append(move(self, waits=waits))
    )
    table, at_once = DecayedTable((1.0,)), DecayedTable((1.0,))
    cells = [((A, column), [1.0]) for column in range(B, B + 1000)]
    for each in (table, at_once):
        add(each, cells)
        each.compact()
    rebuilt.clear()
    for part in range(10):
        add(table, cells[part::100], elapsed=0.5 if part == 0 else 0.0)
    assert rebuilt == []
    add(at_once, [cell for part in range(10) for cell in cells[part::100]], elapsed=0.5)
    assert contents(table) == contents(at_once)


@pytest.mark.parametrize("n_most", [None, 60])
def test_a_move_in_the_background_changes_no_state(monkeypatch, n_most):
    """Nor what is read meanwhile, but for rounding, where no cell goes."""
    dice = np.random.default_rng(1)
    waiting, moving = (DecayedTable((1.0, 4.0), is_live=True, n_most=n_most) for _ in range(2))
    candidates, weights = np.arange(2, 14, dtype=np.int32)[None], np.ones((12, 2), np.float32)
    were_moving = set()
    for _ in range(60):
        rows, columns = dice.integers(2, 14, (2, 100 if len(waiting) == 0 else 3))
        values = dice.random((len(rows), 2)) + 1
        for table, few in ((waiting, tables.FEW_CELLS), (moving, 0)):
            with monkeypatch.context() as patch:
                patch.setattr(tables, "FEW_CELLS", few)
                table.add(rows, columns, values, 0.01)
        assert len(waiting.recent.rows) == len(moving.recent.rows)
        assert not len(waiting.moving.rows)
        were_moving.add(len(moving.moving.rows) > 0)
        found = [
            table.lookup(candidates.astype(int), weights, Moment(0, since=0.5)).sums(candidates, 14)
            for table in (waiting, moving)
        ]
        for each, other in zip(*found, strict=True):
            assert n_most or each == pytest.approx(other, rel=1e-5)
    assert were_moving == {True, False}
    states = waiting.state_dict(), moving.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in DecayedTable.parts)


def test_what_fails_in_the_background_is_raised_where_it_is_waited_for(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(tables, "FEW_CELLS", 0)
    monkeypatch.setattr(tables, "_joined", fail)
    table = DecayedTable((1.0,), is_live=True)
    add(table, [((A, B), [1])])
    with pytest.raises(MemoryError):
        table.state_dict()
