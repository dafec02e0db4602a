"""plm: what is predicted in which order, by hand, by a loop, and seen from the answers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.model.plm import PermutedTask, spans
from dayahead.model.prediction_positions import Question
from support.tiny_settings import GivenDraws, columns_of, draws_for, padded, tiny_model

ITEMS, LENGTHS = padded([[11, 12, 13, 14], [21, 22], []])


def yes(text: str) -> torch.Tensor:
    """`.x. ..x` as a boolean matrix."""
    return torch.tensor([[mark == "x" for mark in row] for row in text.split()])


@st.composite
def batches(draw):
    """Sessions of at least two events, and random numbers for them."""
    lengths = draw(st.lists(st.integers(2, 8), min_size=1, max_size=5))
    items, lengths = padded([list(range(10 * row, 10 * row + n)) for row, n in enumerate(lengths)])
    return items + 2, lengths, draws_for(items, draw(st.integers(0, 2**31)))


tasks = st.builds(PermutedTask, st.sampled_from([0.01, 0.3, 0.5, 0.9]), st.integers(1, 6))


def test_spans_lie_in_stretches_that_follow_each_other():
    """Stretches of 2 and 4 at one half: a span of 1 in the first, of 2 in the second."""
    length_noise = torch.tensor([[0.1, 0.6, 0.9, 0.9, 0.9, 0.9]])
    start_noise = torch.tensor([[0.9, 0.5, 0.9, 0.9, 0.9, 0.9]])
    assert torch.equal(spans(length_noise, start_noise, 0.5, 2), yes(".x.xx."))


def looped_spans(length_noise, start_noise, probability, max_span):
    """One row's, as the definition reads."""
    n = len(length_noise)
    found, begin, stretch = [False] * n, 0, 0
    while begin < n:
        span = 1 + int(length_noise[stretch] * max_span)
        size = int(span / probability)
        start = begin + int(start_noise[stretch] * (size - span + 1))
        for place in range(start, min(start + span, n)):
            found[place] = True
        begin, stretch = begin + size, stretch + 1
    return found


@given(st.integers(1, 20), st.floats(0.01, 0.99), st.integers(1, 6), st.integers(0, 2**31))
def test_spans_are_those_of_a_loop(width, probability, max_span, seed):
    noise = torch.rand(2, 3, width, generator=torch.Generator().manual_seed(seed))
    wanted = [looped_spans(*row, probability, max_span) for row in noise.transpose(0, 1).tolist()]
    assert spans(*noise, probability, max_span).tolist() == wanted


def test_the_predicted_follow_the_given_in_the_order_of_their_noise():
    """Spans of one in stretches of two: of the first session the ends, the first one first."""
    noise = torch.tensor([[0.1, 0.8, 0.9, 0.2], [0.6, 0.0, 0.0, 0.0], [0.0] * 4])
    draws = GivenDraws.of(noise)
    question, answers = PermutedTask(0.5, 1).training_question(ITEMS, LENGTHS, draws)
    assert question.lengths.tolist() == [4, 2, 0]
    assert torch.equal(question.is_asked, yes("x..x .x.. ...."))
    assert not question.is_masked.any()
    assert answers.tolist() == [11, 14, 22]
    assert torch.equal(question.is_hidden[0], yes("x..x x..x x..x ...x"))
    assert torch.equal(question.is_hidden[1], yes(".x.. .x.. .x.. .x.."))
    assert not question.is_hidden[2].any()


def test_one_is_predicted_where_no_span_fell_and_one_given_where_all_were():
    """A span of one in three may begin behind the end; at .9 no stretch leaves any out."""
    noise = torch.tensor([[0.9, 0.3], [0.1, 0.2]])
    items, lengths = padded([[11, 12], [21, 22]])
    few, _ = PermutedTask(0.26, 1).training_question(items, lengths, GivenDraws.of(noise))
    assert torch.equal(few.is_asked, yes(".x x."))
    many, _ = PermutedTask(0.9, 2).training_question(items, lengths, GivenDraws.of(noise))
    assert torch.equal(many.is_asked, yes(".x x."))


def test_the_next_item_is_asked_for_with_all_known_ones_given():
    question = PermutedTask(0.5, 2).next_question(ITEMS, torch.tensor([3, 1, 2]))
    assert question.lengths.tolist() == [4, 2, 3]
    assert torch.equal(question.is_asked, yes("...x .x.. ..x."))
    assert torch.equal(question.is_masked, question.is_asked)
    assert torch.equal(question.is_hidden, question.is_asked[:, None].expand(3, 4, 4))


@given(batches(), tasks)
def test_one_at_least_is_predicted_never_all_and_only_events(batch, task):
    items, lengths, draws = batch
    question, answers = task.training_question(items, lengths, draws)
    n_predicted = question.is_asked.sum(1)
    assert (n_predicted >= 1).all()
    assert (n_predicted < lengths).all()
    assert not (question.is_asked & (items == 0)).any()
    assert answers.tolist() == items[question.is_asked].tolist()


@given(batches(), tasks)
def test_no_predicted_item_is_seen_by_itself_nor_by_one_before_it_in_the_order(batch, task):
    """Of two predicted ones exactly one sees the other; the given ones see none and are seen."""
    question, _ = task.training_question(*batch)
    for is_predicted, is_hidden in zip(question.is_asked, question.is_hidden, strict=True):
        assert not is_hidden[:, ~is_predicted].any()
        assert is_hidden[~is_predicted][:, is_predicted].all()
        among = is_hidden[is_predicted][:, is_predicted]
        assert among.diagonal().all()
        other = ~torch.eye(len(among)).bool()
        assert torch.equal(among ^ among.T, other)
        # An order: the number of those hidden tells each one's place, and no place is shared.
        assert sorted(among.sum(1).tolist()) == list(range(1, len(among) + 1))


@pytest.mark.parametrize(("probability", "max_span"), [(0.25, 3), (0.5, 1), (0.5, 5)])
def test_about_the_share_asked_for_is_predicted_of_long_sessions(probability, max_span):
    items = torch.full((300, 60), 5)
    task = PermutedTask(probability, max_span)
    question, _ = task.training_question(items, torch.full((300,), 60), draws_for(items))
    assert question.is_asked.float().mean().item() == pytest.approx(probability, abs=0.02)


@given(batches(), st.integers(0, 2**31))
def test_a_part_of_a_question_is_its_rows_cut_to_the_longest(batch, seed):
    question, _ = PermutedTask(0.5, 2).training_question(*batch)
    n_rows = len(question.lengths)
    rows = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))[: n_rows // 2 + 1]
    part = question.part(rows)
    width = int(question.lengths[rows].max())
    assert torch.equal(part.is_hidden, question.is_hidden[rows, :width, :width])
    assert torch.equal(part.is_asked, question.is_asked[rows, :width])


@pytest.mark.parametrize("n_layer", [1, 3])
def test_a_predicted_item_changes_the_answers_that_come_after_it_in_the_order_alone(n_layer):
    """Whatever the layers pass on; the given item changes all."""
    model = tiny_model("xlnet", "plm", n_layer=n_layer).eval()
    items, lengths = padded([[2, 3, 4, 5, 6, 7, 8]])
    order = torch.tensor([[-1, 0.3, 0.1, -1, 0.4, -1, 0.2]])
    is_asked = order >= 0
    is_hidden = (order[:, :, None] <= order[:, None, :]) & is_asked[:, None, :]
    question = Question(lengths, torch.zeros_like(is_asked), is_asked, is_hidden)
    before = model._answers(columns_of(items), question)
    asked = order[0][is_asked[0]]
    for place in range(7):
        changed = items.clone()
        changed[0, place] = 20
        differ = (model._answers(columns_of(changed), question) != before).any(1)
        assert torch.equal(differ, asked > order[0, place])


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "gru"])
def test_only_xlnet_has_the_second_stream(architecture):
    with pytest.raises(ConfigError, match=r"model\.architecture.*(task\.name|xlnet)"):
        tiny_model(architecture, "plm")
