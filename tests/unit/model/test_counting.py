"""Baselines by hand: transitions and their decay, popularity, the order of other items."""

import numpy as np
import pytest
import torch

from dayahead.config.baselines import BASELINES
from support.tiny_settings import (
    baseline,
    count_sessions,
    count_window,
    counted,
    padded,
    scores_after,
)

A, B, C, D, E = range(2, 7)
CANDIDATES = torch.tensor([A, B, C, D, E])
every_baseline = pytest.mark.parametrize("architecture", BASELINES)
FIRST = [[A, B, A, B], [A, C], [D, A, B]]
"""A-B three times, B-A, A-C, D-A once; A 4, B 3, C 1, D 1."""


def transitions(decay=1.0):
    return baseline("transitions", 5, model={"decay": decay})


def best_first(model, items):
    """Candidates by score, those of equal score together."""
    scores = scores_after(model, items)
    levels = scores.unique().tolist()[::-1]
    return [set(CANDIDATES[scores == level].tolist()) for level in levels]


def test_popularity_counts_all_events_of_the_last_window():
    model = counted("popularity", FIRST, n_items=5)
    assert scores_after(model, [C]).tolist() == [4, 3, 1, 1, 0]
    count_window(model, [[E, E, D]])
    assert scores_after(model, [C]).tolist() == [0, 0, 0, 1, 2]


def test_transitions_count_consecutive_items():
    model = counted("transitions", FIRST, n_items=5)
    wanted = np.zeros((5, 5))
    wanted[A - 2, B - 2], wanted[A - 2, C - 2] = 3, 1
    wanted[B - 2, A - 2] = wanted[D - 2, A - 2] = 1
    assert np.array_equal(model.pairs.toarray(), wanted)


def test_transitions_rank_by_count_and_other_items_by_popularity():
    model = transitions()
    count_window(model, [[A, C, C, C], [A, D], [A, D], [B, B, B, E, B]])
    # After A: D twice, C once; of the others B has 4 events, A 3, E 1.
    assert best_first(model, [B, A]) == [{D}, {C}, {B}, {A}, {E}]


def test_equal_counts_are_ordered_by_the_popularity_of_the_last_window():
    model = transitions()
    count_window(model, [[A, B], [A, C]])
    count_window(model, [[C, D], [C, D], [D, E]])
    assert best_first(model, [A]) == [{C}, {B}, {D}, {E}, {A}]


def test_transitions_decay_and_popularity_is_reset():
    model = transitions(decay=0.5)
    count_window(model, [[A, B], [A, B], [A, B]])
    count_window(model, [[A, C], [A, C]])
    assert model.pairs[A - 2, B - 2] == 1.5
    assert model.pairs[A - 2, C - 2] == 2
    assert model.popularity.tolist() == [2, 0, 2, 0, 0]


def test_a_decay_of_0_forgets():
    model = transitions(decay=0.0)
    count_window(model, [[A, B]])
    count_window(model, [[C, D]])
    assert model.pairs.nnz == 1


def test_popularity_never_overrides_decayed_counts():
    """0.9 of a count ranks below a whole one, however popular its item."""
    model = transitions(decay=0.9)
    count_window(model, [[A, B]])
    count_window(model, [[A, C], [B, D], [B, D], [B, D], [B, E]])
    assert best_first(model, [A])[:2] == [{C}, {B}]


def test_scores_stay_finite_and_in_order_after_many_windows():
    model = transitions(decay=0.1)
    count_window(model, [[A, B]])
    for _ in range(60):
        count_window(model, [[C, D]])
    count_window(model, [[A, C], [D, E]])
    scores = scores_after(model, [A])
    assert scores.isfinite().all()
    assert best_first(model, [A])[:2] == [{C}, {B}]


def test_growing_keeps_the_counts():
    model = counted("transitions", FIRST, n_items=5)
    model.grow({"item_id": 8})
    count_window(model, [[A, 9]])
    assert model.n_items == 8
    assert model.pairs[A - 2, B - 2] == 3
    assert model.pairs[A - 2, 9 - 2] == 1


@every_baseline
@pytest.mark.parametrize("item", [1, 7, 1000])
def test_after_an_unknown_item_or_before_any_session_popularity_alone_counts(architecture, item):
    """Of A to E, which have 6, 4, 3, 2 events and 1; D follows E, the last item."""
    log = [[E, D], [D, C], [C, B], [C, A], [B, A], [B, A], [A, B], [A, A]]
    found = scores_after(counted(architecture, log, n_items=5), [item])
    assert found.argsort(descending=True, stable=True).tolist() == [0, 1, 2, 3, 4]
    without = scores_after(baseline(architecture, 5), [A])
    assert without[1:].unique().numel() == 1  # `own` ranks A first


@every_baseline
def test_candidates_are_scored_in_their_order(architecture):
    model = counted(architecture, [[A, B, C], [A, B], [D, A]], n_items=5)
    some = torch.tensor([D, C, B])
    found, every = scores_after(model, [A], some), scores_after(model, [A])[some - 2]
    assert torch.equal(found.argsort(stable=True), every.argsort(stable=True))
    assert scores_after(model, [A], some[:0]).shape == (0,)


def test_a_million_events_are_counted_exactly():
    model = transitions()
    model.start_window(0)
    model.count({"item_id": torch.full((1000, 1000), A)}, torch.full((1000,), 1000))
    model.count({"item_id": torch.tensor([[A, B]])}, torch.tensor([2]))
    model.finish_window()
    assert model.popularity[0] == 1_000_001
    assert model.pairs[0, 0] == 999_000


def cooccurrence(decay=1.0):
    return baseline("cooccurrence", 5, model={"decay": decay})


def test_cooccurrence_counts_all_pairs_of_a_session_both_ways():
    model = cooccurrence()
    count_window(model, [[A, B, C], [A, C]])
    wanted = np.zeros((5, 5))
    wanted[A - 2, B - 2] = wanted[B - 2, C - 2] = 1
    wanted[A - 2, C - 2] = 2
    assert np.array_equal(model.pairs.toarray(), wanted + wanted.T)


@every_baseline
@pytest.mark.parametrize(
    "log",
    [
        [[A, B], [B, C], [A, D], [C, D], [D, A], [E, B]],
        [[A, B, C], [B, C], [A, D, A], [C, D], [D, A, B, E], [E, B]],
    ],
)
def test_the_order_of_counting_is_irrelevant(architecture, log):
    """One by one, so that batches are added up; also for sessions that end at the same time."""
    states = []
    for order in (log, log[::-1]):
        model = baseline(architecture, 8)
        model.start_window(0)
        for session in order:
            count_sessions(model, [session])
        model.finish_window()
        states.append(model.state_dict())
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


def test_events_count_what_they_are_worth():
    """A pair counts the worth of its second event, popularity that of each."""
    items, lengths = padded([[A, B, A], [A, C]])
    worth = torch.tensor([[1.0, 3.0, 10.0], [1.0, 0.5, 0.0]])
    columns = {"item_id": items, "_worth": worth}
    popularity, after, beside = (
        baseline(name, 5) for name in ("popularity", "transitions", "cooccurrence")
    )
    for model in (popularity, after, beside):
        model.start_window(0)
        model.count(columns, lengths)
        model.finish_window()
        assert model.popularity.tolist() == [12, 3, 0.5, 0, 0]
    assert after.pairs.toarray()[:3, :3].tolist() == [[0, 3, 0.5], [10, 0, 0], [0, 0, 0]]
    assert beside.pairs.toarray()[:3, :3].tolist() == [[0, 6, 0.5], [11, 0, 0], [1, 0, 0]]
