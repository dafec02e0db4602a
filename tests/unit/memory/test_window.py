"""A window's sessions in parts, in memory or on disk: the same model, whatever holds them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dayahead.core.ragged import cut
from dayahead.memory import clicks as module
from dayahead.memory.collected import SessionsOnDisk
from dayahead.memory.memories import Memories
from dayahead.memory.outline import Outline
from support.clicks import HOUR, clicks, positions_of, random_clicks, seeds, with_pasts
from support.memory_models import SETTINGS, SIZES, equal_states, fitted, window

A, B, C = 2, 3, 4


def on_disk(sessions):
    """The same sessions, outlined in two batches and read when they are needed."""
    half = len(sessions) // 2
    batches = [np.arange(half), np.arange(half, len(sessions))]
    outline = Outline.cat([sessions.take(rows).outline() for rows in batches])
    return SessionsOnDisk(outline, lambda rows, *, is_held: sessions.take(rows))


def weighted(sessions, seed):
    """Sessions with pasts, whose clicks differ in worth; not all are predicted."""
    dice = np.random.default_rng(seed)
    n = len(sessions.items)
    given_worth = {"worth": dice.random(n), "is_target": dice.random(n) < 0.7}
    return replace(with_pasts(sessions, seed), **given_worth)


@pytest.mark.parametrize("n_most", [1, 7, 10**6])
@settings(max_examples=10)
@given(seed=seeds)
def test_memories_count_parts_as_they_count_all(n_most, seed):
    sessions, end = window(seed, 0)
    rows = sessions.outline().order()
    whole, parts = Memories(SETTINGS), Memories(SETTINGS)
    for each in (whole, parts):
        each.grow(SIZES)
    whole.add([sessions.take(rows)], end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CLICKS", n_most)
        parts.add(sessions.parts(rows), end)
    found = parts.state_dict()
    for name, value in whole.state_dict().items():
        if value.is_floating_point():  # the sum of each part is rounded
            assert torch.allclose(value, found[name], rtol=1e-5, atol=1e-5), name
        else:
            assert torch.equal(value, found[name]), name


@pytest.mark.long
@pytest.mark.parametrize("n_most", [30, 10**6])
@settings(max_examples=10)
@given(seed=seeds)
def test_sessions_on_disk_make_the_model_that_those_in_memory_make(n_most, seed):
    windows = [window(seed + n, n) for n in range(2)]
    windows = [(weighted(sessions, seed), end) for sessions, end in windows]
    kinds = {"with_past": True, "has_weights": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CLICKS", n_most)
        held = fitted(*windows, **kinds)
        read = fitted(*((on_disk(sessions), end) for sessions, end in windows), **kinds)
    assert equal_states(held, read)


@given(seeds)
def test_few_examples_are_drawn_from_all_positions_alike(seed):
    sessions = random_clicks(seed)
    rows, n_most = sessions.outline().order(), 5
    drawn = sessions.outline().drawn(rows, n_most, torch.Generator().manual_seed(seed))
    every = positions_of(sessions.take(rows))
    order = torch.randperm(len(every.rows), generator=torch.Generator().manual_seed(seed))
    expected = every.take(order[:n_most].sort().values.numpy())
    assert [each.tolist() for each in drawn] == [each.tolist() for each in expected]


def test_nothing_is_drawn_from_sessions_of_one_click():
    outline = clicks([[A], [], [B]]).outline()
    assert outline.order().tolist() == [0, 2] or outline.order().tolist() == [2, 0]
    drawn = outline.drawn(outline.order(), 9, torch.Generator())
    assert len(drawn.rows) == 0


def test_a_click_after_the_end_is_not_learned_from():
    sessions = clicks([[A, B, C]], times=[[0.2, 0.9, 1.1]])
    drawn = sessions.outline(before=HOUR).drawn(np.array([0]), 9, torch.Generator())
    assert sessions.following(drawn).tolist() == [B]


@given(seeds)
def test_rows_are_cut_into_parts_of_at_most_so_many_values(seed):
    dice = np.random.default_rng(seed)
    lengths, n_most = dice.integers(0, 9, dice.integers(0, 30)), int(dice.integers(1, 20))
    parts = [*cut(lengths, n_most)]
    assert [row for part in parts for row in range(len(lengths))[part]] == [*range(len(lengths))]
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        assert lengths[part].sum() <= n_most or part.stop - part.start == 1
        if after is not None:  # another row would have been too much
            assert lengths[part.start : part.stop + 1].sum() > n_most


def test_no_rows_are_one_part():
    assert [*cut(np.zeros(0, int), 5)] == [slice(0, 0)]
