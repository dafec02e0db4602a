"""Training tasks: masked and predicted positions by hand, and properties for any session."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.model.tasks import (
    CausalTask,
    MaskedTask,
    PermutationTask,
    PredictionPositions,
    build_task,
    spans,
)
from support.tiny_settings import (
    FixedRandom,
    columns_of,
    padded,
    step_random,
    task_config,
    tiny_model,
)

ITEMS, LENGTHS = padded([[11, 12, 13, 14], [21, 22], []])
UNUSED = FixedRandom.of(torch.zeros(3, 4))


def mask(text: str) -> torch.Tensor:
    """`.x. ..x` as a boolean matrix."""
    return torch.tensor([[mark == "x" for mark in row] for row in text.split()])


@st.composite
def batches(draw):
    """Sessions of at least two events, and random numbers for them."""
    lengths = draw(st.lists(st.integers(2, 8), min_size=1, max_size=5))
    items, lengths = padded([list(range(10 * row, 10 * row + n)) for row, n in enumerate(lengths)])
    return items + 2, lengths, step_random(items, draw(st.integers(0, 2**31)))


masked_tasks = st.builds(MaskedTask, st.sampled_from([0.01, 0.3, 0.7, 0.99]))
permutation_tasks = st.builds(
    PermutationTask, st.sampled_from([0.01, 0.3, 0.5, 0.9]), st.integers(1, 6)
)


def test_the_configured_task_is_built():
    assert build_task(task_config(name="clm")) == CausalTask()
    assert build_task(task_config(name="mlm", mlm_probability=0.2)) == MaskedTask(0.2)
    assert build_task(task_config(name="rtd", mlm_probability=0.2)) == MaskedTask(0.2)
    plm = task_config(name="plm", plm_probability=0.4, plm_max_span=2)
    assert build_task(plm) == PermutationTask(0.4, 2)


class TestCausal:
    def test_every_event_but_the_last_predicts_the_following_item(self):
        positions, labels = CausalTask().training_positions(ITEMS, LENGTHS, UNUSED)
        assert positions.lengths.tolist() == [3, 1, 0]
        assert torch.equal(positions.is_predicted, mask("xxx x.. ..."))
        assert not positions.is_masked.any()
        assert labels.tolist() == [12, 13, 14, 22]

    def test_the_last_known_event_predicts_the_next_item(self):
        positions = CausalTask().next_item_positions(ITEMS, torch.tensor([3, 1, 2]))
        assert positions.lengths.tolist() == [3, 1, 2]
        assert torch.equal(positions.is_predicted, mask("..x x.. .x."))
        assert not positions.is_masked.any()


class TestMasked:
    def test_events_are_masked_where_the_noise_is_below_the_probability(self):
        noise = torch.tensor([[0.1, 0.9, 0.2, 0.8], [0.9, 0.1, 0.0, 0.0], [0.0] * 4])
        rng = FixedRandom.of(noise)
        positions, labels = MaskedTask(0.3).training_positions(ITEMS, LENGTHS, rng)
        assert positions.lengths.tolist() == [4, 2, 0]
        assert torch.equal(positions.is_masked, mask("x.x. .x.. ...."))
        assert torch.equal(positions.is_predicted, positions.is_masked)
        assert labels.tolist() == [11, 13, 22]

    def test_one_is_masked_where_none_would_be_and_one_kept_where_all_would(self):
        noise = torch.tensor([[0.9, 0.5, 0.6, 0.7], [0.1, 0.2, 0.9, 0.9], [0.9] * 4])
        positions, _ = MaskedTask(0.3).training_positions(ITEMS, LENGTHS, FixedRandom.of(noise))
        assert torch.equal(positions.is_masked, mask(".x.. x... ...."))

    def test_the_next_item_is_a_mask_behind_the_known_events(self):
        positions = MaskedTask(0.3).next_item_positions(ITEMS, torch.tensor([3, 1, 2]))
        assert positions.lengths.tolist() == [4, 2, 3]
        assert torch.equal(positions.is_masked, mask("...x .x.. ..x."))
        assert torch.equal(positions.is_predicted, positions.is_masked)


@pytest.mark.long
@settings(max_examples=200)
@given(batches(), masked_tasks | permutation_tasks)
def test_at_least_one_event_is_predicted_and_never_all(batch, task):
    items, lengths, rng = batch
    positions, labels = task.training_positions(items, lengths, rng)
    n_predicted = positions.is_predicted.sum(1)
    assert (n_predicted >= 1).all()
    assert (n_predicted < lengths).all()
    assert not (positions.is_predicted & (items == 0)).any()
    assert labels.tolist() == items[positions.is_predicted].tolist()


def looped_spans(length_noise, start_noise, probability, max_span):
    """One row's spans, by the definition."""
    n = len(length_noise)
    found, begin, stretch = [False] * n, 0, 0
    while begin < n:
        span = 1 + int(length_noise[stretch] * max_span)
        size = int(span / probability)
        start = begin + int(start_noise[stretch] * (size - span + 1))
        for position in range(start, min(start + span, n)):
            found[position] = True
        begin, stretch = begin + size, stretch + 1
    return found


class TestPermutation:
    @given(st.integers(1, 20), st.floats(0.01, 0.99), st.integers(1, 6), st.integers(0, 2**31))
    def test_spans_are_those_of_a_loop(self, width, probability, max_span, seed):
        noise = torch.rand(2, 3, width, generator=torch.Generator().manual_seed(seed))
        rows = noise.transpose(0, 1).tolist()
        wanted = [looped_spans(*row, probability, max_span) for row in rows]
        assert spans(*noise, probability, max_span).tolist() == wanted

    def test_the_predicted_follow_the_context_in_the_order_of_their_noise(self):
        """Spans of 1 in stretches of 2: of the first session both ends, the first one first."""
        noise = torch.tensor([[0.1, 0.8, 0.9, 0.2], [0.6, 0.0, 0.0, 0.0], [0.0] * 4])
        task, rng = PermutationTask(0.5, 1), FixedRandom.of(noise)
        positions, labels = task.training_positions(ITEMS, LENGTHS, rng)
        assert positions.lengths.tolist() == [4, 2, 0]
        assert torch.equal(positions.is_predicted, mask("x..x .x.. ...."))
        assert not positions.is_masked.any()
        assert labels.tolist() == [11, 14, 22]
        assert torch.equal(positions.is_hidden[0], mask("x..x x..x x..x ...x"))
        assert torch.equal(positions.is_hidden[1], mask(".x.. .x.. .x.. .x.."))
        assert not positions.is_hidden[2].any()

    def test_one_is_predicted_without_any_span_and_one_kept_as_context(self):
        """A span of 1 in 3 may begin after the end; at 0.9 no stretch leaves any out."""
        rng = FixedRandom.of(torch.tensor([[0.9, 0.3], [0.1, 0.2]]))
        items, lengths = padded([[11, 12], [21, 22]])
        for task in (PermutationTask(0.26, 1), PermutationTask(0.9, 2)):
            positions, _ = task.training_positions(items, lengths, rng)
            assert torch.equal(positions.is_predicted, mask(".x x."))

    def test_the_next_item_is_predicted_from_all_known_ones(self):
        positions = PermutationTask(0.5, 2).next_item_positions(ITEMS, torch.tensor([3, 1, 2]))
        assert positions.lengths.tolist() == [4, 2, 3]
        assert torch.equal(positions.is_predicted, mask("...x .x.. ..x."))
        assert torch.equal(positions.is_masked, positions.is_predicted)
        assert torch.equal(positions.is_hidden, positions.is_predicted[:, None].expand(3, 4, 4))

    @given(batches(), permutation_tasks)
    def test_a_predicted_item_is_hidden_from_itself_and_from_those_before_it(self, batch, task):
        """Of two predicted items exactly one sees the other; the context sees none of them."""
        positions, _ = task.training_positions(*batch)
        for predicted, is_hidden in zip(positions.is_predicted, positions.is_hidden, strict=True):
            assert not is_hidden[:, ~predicted].any()
            assert is_hidden[~predicted][:, predicted].all()
            among = is_hidden[predicted][:, predicted]
            assert among.diagonal().all()
            assert torch.equal(among ^ among.T, ~torch.eye(len(among)).bool())
            # A total order: the number of items hidden from each is its rank, and all differ.
            assert sorted(among.sum(1).tolist()) == list(range(1, len(among) + 1))

    @pytest.mark.parametrize(("probability", "max_span"), [(0.25, 3), (0.5, 1), (0.5, 5)])
    def test_about_the_probability_is_predicted_of_long_sessions(self, probability, max_span):
        items, lengths = torch.full((300, 60), 5), torch.full((300,), 60)
        task = PermutationTask(probability, max_span)
        positions, _ = task.training_positions(items, lengths, step_random(items))
        share = positions.is_predicted.float().mean().item()
        assert share == pytest.approx(probability, abs=0.02)

    @pytest.mark.parametrize("n_layer", [1, 3])
    def test_a_predicted_item_changes_only_predictions_after_it_in_the_order(self, n_layer):
        """Through any number of layers; a context item changes all."""
        model = tiny_model("xlnet", "plm", n_layer=n_layer).eval()
        items, lengths = padded([[2, 3, 4, 5, 6, 7, 8]])
        order = torch.tensor([[-1, 0.3, 0.1, -1, 0.4, -1, 0.2]])
        is_predicted = order >= 0
        is_hidden = (order[:, :, None] <= order[:, None, :]) & is_predicted[:, None, :]
        no_mask = torch.zeros_like(is_predicted)
        positions = PredictionPositions(lengths, no_mask, is_predicted, is_hidden)
        before = model._output_states(columns_of(items), positions)
        for position in range(7):
            changed = items.clone()
            changed[0, position] = 20
            after = model._output_states(columns_of(changed), positions)
            differs = (after != before).any(1)
            assert torch.equal(differs, order[is_predicted] > order[0, position])


def marked(random, flags):
    return replace(random, global_marks={"_is_target": flags})


@given(batches(), st.one_of(st.just(CausalTask()), masked_tasks, permutation_tasks), st.data())
def test_only_events_of_the_predicted_types_are_predicted(batch, task, data):
    items, lengths, random = batch
    seed = data.draw(st.integers(0, 99))
    flags = torch.randint(0, 2, items.shape, generator=torch.Generator().manual_seed(seed))
    positions, labels = task.training_positions(items, lengths, marked(random, flags))
    could_be = (flags == 1) & (torch.arange(items.shape[1]) < lengths[:, None])
    could_be[:, 0] &= task.first_target == 0
    assert {*labels.tolist()} <= {*items[could_be].tolist()}
    # Where there is one, at least one is; and never a whole session.
    n_predicted = positions.is_predicted.sum(1)
    assert torch.equal(n_predicted > 0, could_be.any(1))
    assert (n_predicted < lengths).all()
    assert torch.equal(task.at_targets(items, positions), labels)
    if isinstance(task, CausalTask):
        assert len(labels) == could_be.sum()
