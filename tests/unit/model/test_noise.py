"""Swap noise: how often, for what, and that neither targets nor padding take part."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.noise import swapped
from dayahead.model.rng import StepRandom
from support.tiny_settings import columns_of, draws_for, padded, tiny_model

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13], []]


def test_exchanged_by_hand():
    """Uniform numbers below p are exchanged, for the place in the batch that another names."""
    items, _ = padded([[11, 12, 13], [21, 22]])

    class Given(StepRandom):
        def uniform(self, purpose):
            numbers = {
                "is_swapped": [[0.1, 0.5, 0.29], [0.3, 0.0, 0.0]],
                "swapped_for": [[0.99, 0.0, 0.2], [0.0, 0.59, 0.9]],
            }
            return torch.tensor(numbers[purpose])

    draws = Given(**vars(draws_for(items)))
    # The batch is 11 12 13 21 22: .99 * 5 is its last, .2 * 5 its second, .59 * 5 its third.
    assert swapped(items, draws, 0.3).tolist() == [[22, 12, 12], [21, 13, 0]]


def test_as_often_as_wished_and_for_items_as_frequent_as_in_the_batch():
    items = torch.tensor([[2] * 30 + [3] * 10] * 500)
    found = swapped(items, draws_for(items), 0.4)
    changed = (found != items).float()
    # An exchange for the same item is none to see.
    assert changed[:, :30].mean().item() == pytest.approx(0.4 * 0.25, abs=0.01)
    assert changed[:, 30:].mean().item() == pytest.approx(0.4 * 0.75, abs=0.02)


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=6), min_size=1, max_size=8).filter(any),
    st.floats(0, 0.99),
    st.integers(0, 99),
)
def test_padding_neither_leaves_nor_comes(sessions, probability, seed):
    items, lengths = padded(sessions)
    found = swapped(items, draws_for(items, seed), probability)
    is_event = torch.arange(items.shape[1]) < lengths[:, None]
    assert torch.equal(found > 0, is_event)
    assert set(found[is_event].tolist()) <= set(items[is_event].tolist())


@given(st.integers(1, 4), st.integers(0, 99))
def test_processes_exchange_what_one_would(world, seed):
    items, _ = padded(SESSIONS)
    whole = draws_for(items, seed)
    wanted = swapped(items, whole, 0.5)
    for rank in range(world):
        rows = torch.arange(len(items))[rank::world]
        found = swapped(items[rows], whole.part(rows, items.shape[1]), 0.5)
        assert torch.equal(found, wanted[rows])


@pytest.mark.parametrize(("architecture", "task"), [("gpt2", "clm"), ("bert", "mlm")])
def test_targets_are_left_alone(architecture, task):
    """The targets of a model that exchanges everything are those of one that does nothing."""
    items, lengths = padded(SESSIONS)
    model = tiny_model(architecture, task, swap_noise=0.99)
    seen, asked = [], []
    model.inputs.register_forward_pre_hook(lambda _, given: seen.append(given[0]["item_id"]))
    training_question = model.task.training_question

    def spied(*given):
        question, answers = training_question(*given)
        asked.append(answers)
        return question, answers

    object.__setattr__(model.task, "training_question", spied)
    model.train()(columns_of(items), lengths, draws_for(items))
    width = seen[0].shape[1]
    assert not torch.equal(seen[0], items[:, :width])
    answers = training_question(items, lengths, draws_for(items))[1]
    assert torch.equal(asked[0], answers)
    assert torch.equal(items, padded(SESSIONS)[0])


def test_in_training_only():
    items, lengths = padded(SESSIONS)
    given = columns_of(items), lengths, draws_for(items)
    noisy, clean = tiny_model(swap_noise=0.9), tiny_model()
    assert noisy.train()(*given)[0] != clean.train()(*given)[0]
    assert noisy.eval()(*given)[0] == clean.eval()(*given)[0]
