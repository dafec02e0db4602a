"""What each task hides and asks, by hand and for any session."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.tasks import CausalTask, MaskedTask, build_task
from support.tiny_settings import GivenDraws, draws_for, padded, task_config

ITEMS, LENGTHS = padded([[11, 12, 13, 14], [21, 22], []])
UNUSED = GivenDraws.of(torch.zeros(3, 4))


def yes(text: str) -> torch.Tensor:
    """`.x. ..x` as a boolean matrix."""
    return torch.tensor([[mark == "x" for mark in row] for row in text.split()])


@st.composite
def sessions(draw):
    lengths = draw(st.lists(st.integers(2, 7), min_size=1, max_size=5))
    items, lengths = padded([list(range(10 * row, 10 * row + n)) for row, n in enumerate(lengths)])
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    numbers = torch.rand(items.shape, generator=generator)
    return items + 2, lengths, GivenDraws.of(numbers)


def test_the_settings_name_the_task():
    assert build_task(task_config(name="clm")) == CausalTask()
    assert build_task(task_config(name="mlm", mlm_probability=0.2)) == MaskedTask(0.2)


def test_clm_asks_at_every_event_but_the_last_for_the_one_that_follows():
    question, answers = CausalTask().training_question(ITEMS, LENGTHS, UNUSED)
    assert question.lengths.tolist() == [3, 1, 0]
    assert torch.equal(question.is_asked, yes("xxx x.. ..."))
    assert not question.is_masked.any()
    assert answers.tolist() == [12, 13, 14, 22]


def test_clm_asks_for_the_next_item_at_the_last_known_event():
    question = CausalTask().next_question(ITEMS, torch.tensor([3, 1, 2]))
    assert question.lengths.tolist() == [3, 1, 2]
    assert torch.equal(question.is_asked, yes("..x x.. .x."))
    assert not question.is_masked.any()


def test_mlm_masks_where_the_noise_falls_below_the_probability():
    noise = torch.tensor([[0.1, 0.9, 0.2, 0.8], [0.9, 0.1, 0.0, 0.0], [0.0] * 4])
    question, answers = MaskedTask(0.3).training_question(ITEMS, LENGTHS, GivenDraws.of(noise))
    assert question.lengths.tolist() == [4, 2, 0]
    assert torch.equal(question.is_masked, yes("x.x. .x.. ...."))
    assert torch.equal(question.is_asked, question.is_masked)
    assert answers.tolist() == [11, 13, 22]


def test_mlm_masks_one_where_none_fell_and_spares_one_where_all_fell():
    noise = torch.tensor([[0.9, 0.5, 0.6, 0.7], [0.1, 0.2, 0.9, 0.9], [0.9] * 4])
    question, _ = MaskedTask(0.3).training_question(ITEMS, LENGTHS, GivenDraws.of(noise))
    assert torch.equal(question.is_masked, yes(".x.. x... ...."))


def test_mlm_puts_the_mask_where_the_next_item_will_stand():
    question = MaskedTask(0.3).next_question(ITEMS, torch.tensor([3, 1, 2]))
    assert question.lengths.tolist() == [4, 2, 3]
    assert torch.equal(question.is_masked, yes("...x .x.. ..x."))
    assert torch.equal(question.is_asked, question.is_masked)


@given(sessions(), st.sampled_from([0.01, 0.3, 0.7, 0.99]))
def test_mlm_masks_one_at_least_never_all_and_only_events(drawn, probability):
    items, lengths, draws = drawn
    question, answers = MaskedTask(probability).training_question(items, lengths, draws)
    n_masked = question.is_masked.sum(1)
    assert (n_masked >= 1).all()
    assert (n_masked < lengths).all()
    assert not (question.is_masked & (items == 0)).any()
    assert answers.tolist() == items[question.is_masked].tolist()


@given(sessions())
def test_clm_answers_are_the_next_items(drawn):
    items, lengths, draws = drawn
    question, answers = CausalTask().training_question(items, lengths, draws)
    wanted = [
        item for row, n in zip(items.tolist(), lengths.tolist(), strict=True) for item in row[1:n]
    ]
    assert answers.tolist() == wanted
    assert int(question.is_asked.sum()) == len(wanted)


@pytest.mark.parametrize("probability", [0.15, 0.5])
def test_mlm_masks_about_its_probability_of_long_sessions(probability):
    items = torch.full((400, 20), 5)
    lengths = torch.full((400,), 20)
    question, _ = MaskedTask(probability).training_question(items, lengths, draws_for(items))
    assert question.is_masked.float().mean().item() == pytest.approx(probability, abs=0.02)
