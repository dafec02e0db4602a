"""The head and its training: gradients, standardising, replay, what explains a score."""

import math
from dataclasses import replace

import pytest
import torch

from dayahead.memory.explain import contributions
from dayahead.memory.gate import Gate
from dayahead.memory.head import Head, Mixture
from dayahead.memory.head_examples import Examples, Replay
from dayahead.memory.training import HeadTrainer
from support.memory_models import CONFIG


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def examples(n, n_candidates=4, n_features=3, n_context=2, seed=0):
    """The next item is the candidate of the largest first feature; the first candidate is own, the
    last is padding."""
    features = torch.randn(n, n_candidates, n_features, generator=dice(seed))
    is_candidate = torch.ones(n, n_candidates, dtype=torch.bool)
    is_candidate[:, -1] = False
    targets = features[:, :-1, 0].argmax(1)
    context = torch.randn(n, n_context, generator=dice(1))
    return Examples(
        features, is_candidate, first_is_own(is_candidate), context, targets, torch.ones(n)
    )


def first_is_own(is_candidate):
    is_own = torch.zeros_like(is_candidate)
    is_own[:, 0] = True
    return is_own


def head_of(width=8, n_features=3):
    return Head(n_features, 2, width, seed=0, gate=Gate([0, 1], 100))


def test_the_loss_falls_and_the_head_ranks_the_next_item_first():
    head = head_of()
    trainer = HeadTrainer(head, replace(CONFIG, learning_rate=0.05, min_steps=0))
    every = examples(400)
    every.is_own[:] = False
    losses = [trainer.fit(every, 2, dice(epoch)) for epoch in range(5)]
    assert losses[-1] < 0.3 < losses[0]
    scores = head(every).masked_fill(~every.is_candidate, -torch.inf)
    assert (scores.argmax(1) == every.targets).float().mean() > 0.9


def test_padding_gets_no_gradient():
    every = examples(10)
    every.features[:, -1] = 1e6
    head = head_of(0)
    HeadTrainer(head, replace(CONFIG, weight_decay=0.0)).fit(every, 1, dice())
    other = head_of(0)
    HeadTrainer(other, replace(CONFIG, weight_decay=0.0)).fit(examples(10), 1, dice())
    assert torch.equal(head.linear, other.linear)


def test_without_examples_nothing_is_learned():
    head = head_of()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert HeadTrainer(head, CONFIG).fit(examples(0), 2, dice()) is None
    head.learn_scale([examples(0)])
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_candidates_are_standardised_padding_not_counted():
    every = examples(500)
    every.features[..., 1] = every.features[..., 1] * 5 + 3
    every.features[:, :, 2] = 7.0
    every.features[:, -1] = 1e6
    head = head_of()
    head.learn_scale([every])
    scaled = head.scaled(every).features[:, :-1].flatten(0, 1)
    assert scaled.mean(0) == pytest.approx(torch.zeros(3), abs=1e-4)
    assert scaled.std(0) == pytest.approx(torch.tensor([1.0, 1.0, 0.0]), abs=1e-2)
    assert head.scaled(every).features.max() == 8  # outliers are cut off


def test_the_scale_of_parts_is_that_of_the_whole():
    every = examples(500, n_features=19)
    every.features.mul_(torch.arange(1, 20))
    heads = [Head(19, 2, 0, 0, Gate([0, 1], 4)) for _ in range(2)]
    heads[0].learn_scale([every])
    heads[1].learn_scale(
        [every.take(slice(300)), examples(0, n_features=19), every.take(slice(300, None))]
    )
    of_whole, of_parts = (head.state_dict() for head in heads)
    assert all(torch.equal(of_whole[name], of_parts[name]) for name in of_whole)
    candidates = every.features[every.is_candidate].double()
    assert of_whole["features_mean"] == pytest.approx(candidates.mean(0).float())
    assert of_whole["features_std"] == pytest.approx(candidates.std(0, correction=0).float())


def test_a_replay_keeps_the_latest():
    replay = Replay(5, 4, 3, 2)
    first, second, third = examples(3, seed=1), examples(4, seed=2), examples(9, seed=3)
    replay.add(first)
    replay.add(second)
    wanted = torch.cat([first.features[2:], second.features]).half()
    assert torch.equal(replay.kept.features, wanted)
    replay.add(third)
    assert torch.equal(replay.kept.targets, third.targets[4:])


def test_a_replay_of_none_stays_empty():
    replay = Replay(0, 4, 3, 2)
    replay.add(examples(3))
    assert len(replay.kept) == 0


@pytest.mark.parametrize("width", [0, 8])
def test_contributions_sum_to_the_lead_over_the_mean_candidate(width):
    head = head_of(width)
    head.out.data[:] = torch.randn(width, generator=dice())
    head.linear.data[:] = torch.randn(3, generator=dice(1))
    head.gate.bias.data.fill_(1.5)
    every = examples(1, n_candidates=6)
    is_candidate = every.is_candidate[0]
    scores = head(every)[0].detach()
    for column in (0, 2):
        found = contributions(head, every, column, own=1)
        gated = scores - head.evidence(every.features, every.context)[0].detach()
        mean = every.features[0][is_candidate].mean(0)
        at_mean = head.evidence(mean[None, None], every.context)[0, 0].detach()
        lead = scores[column] - at_mean - gated[is_candidate].mean()
        assert float(found.sum()) == pytest.approx(float(lead), abs=0.02)


def test_of_a_linear_head_a_contribution_is_weight_times_difference():
    """And the gate's part, of candidates that are all own, is none."""
    head = head_of(0)
    head.linear.data[:] = torch.tensor([1.0, -2.0, 0.0])
    features = torch.tensor([[[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]])
    all_own = torch.ones(1, 2, dtype=torch.bool)
    every = Examples(
        features, all_own, all_own, torch.zeros(1, 2), torch.tensor([0]), torch.ones(1)
    )
    assert contributions(head, every, column=1, own=2).tolist() == pytest.approx([1, -2, 0])


def test_a_gate_by_hand():
    """Own items share p, the others 1 - p; where one group is empty the other has all."""
    head = head_of(0, n_features=1)
    head.linear.data[:] = 1.0
    head.gate.linear.data[:] = torch.tensor([2.0, 0.0])
    head.gate.bias.data.fill_(-1.0)
    rows = [[True, False, False, False], [False] * 4, [True, True, True, False]]
    is_candidate = torch.tensor([[True, True, True, False]] * 3)
    context = torch.tensor([[0.8, 9.0]] * 3)
    features = torch.tensor([[[1.0], [2.0], [0.0], [5.0]]] * 3).log().clamp(-9)
    every = Examples(
        features, is_candidate, torch.tensor(rows), context, torch.tensor([0] * 3), torch.ones(3)
    )
    p = 1 / (1 + math.exp(-(2.0 * 0.8 - 1.0)))
    found = head(every).exp()[:, :3]
    assert found[0].tolist() == pytest.approx([p, 1 - p, 0], abs=1e-3)
    for row in found[1:]:
        assert row.tolist() == pytest.approx([1 / 3, 2 / 3, 0], abs=1e-3)


def test_a_gate_with_none_of_a_group_among_the_best():
    """With `rank_all`, own items may be all of the best that the head has learned from."""
    gate = Gate([0], 2)
    is_own = torch.tensor([[True, True, True, False, False, False]])
    is_candidate = torch.tensor([[True] * 5 + [False]])
    every = Examples(
        *(torch.zeros(1, 6, 1), is_candidate, is_own),
        *(torch.zeros(1, 1), torch.tensor([0]), torch.ones(1)),
    )
    [found] = gate(torch.tensor([[2.0, 1.0, 3.0, 3.0, 1.0, 9.0]]).log(), every).exp()
    # The own items' constant is that of the two best, 2 + 1; all others have theirs, 3 + 1.
    wanted = [0.5 * 2 / 3, 0.5 * 1 / 3, 0.5 * 3 / 3, 0.5 * 3 / 4, 0.5 * 1 / 4]
    assert found[:5].tolist() == pytest.approx(wanted)


def test_a_gate_learns_how_often_visitors_come_back():
    """In a third of the examples, whatever the features say; none may come back in some."""
    every = examples(600)
    is_back = torch.arange(600) % 3 == 0
    others = 1 + every.features[:, 1:-1, 0].argmax(1)
    is_own = every.is_own & (torch.arange(600) % 2 == 0)[:, None]
    targets = torch.where(is_back & is_own[:, 0], 0, others)
    context = torch.zeros(600, 2)
    head = head_of(0)
    trainer = HeadTrainer(head, replace(CONFIG, learning_rate=0.05, weight_decay=0.0))
    known = replace(every, is_own=is_own, targets=targets, context=context)
    for epoch in range(5):
        trainer.fit(known, 2, dice(epoch))
    assert head.gate.bias.sigmoid().item() == pytest.approx(1 / 3, abs=0.03)


def test_a_mixture_by_hand():
    """Two sources that give an item .5 and .1, mixed as 3 to 1; the third feature is no source."""
    head = Mixture([True, True, False], 2, seed=0)
    head.linear.data = torch.tensor([3.0, 1.0, 99.0]).log()
    logs = torch.tensor([[[0.5, 0.1, 7.0], [0.2, 0.6, -7.0]]]).log().nan_to_num()
    both = torch.ones(1, 2, dtype=torch.bool)
    every = Examples(logs, both, ~both, torch.ones(1, 2), torch.tensor([0]), torch.ones(1))
    expected = torch.tensor([[0.75 * 0.5 + 0.25 * 0.1, 0.75 * 0.2 + 0.25 * 0.6]])
    assert head(every).exp().tolist()[0] == pytest.approx(expected.tolist()[0])
    head.features_mean[:], head.features_std[:] = 2.0, 3.0
    assert head(head.scaled(every)).exp().tolist()[0] == pytest.approx(expected.tolist()[0])


def test_a_mixture_learns_which_source_is_right():
    """The next item is the one that the first of two sources expects."""
    right = torch.randn(400, 4, generator=dice(2)).log_softmax(1)
    wrong = torch.randn(400, 4, generator=dice(3)).log_softmax(1)
    features = torch.stack([wrong, 3 * right, right], dim=2)
    four = torch.ones(400, 4, dtype=torch.bool)
    every = Examples(features, four, ~four, torch.zeros(400, 0), right.argmax(1), torch.ones(400))
    head = Mixture([True, True, False], 0, seed=0)
    trainer = HeadTrainer(head, replace(CONFIG, learning_rate=0.05))
    losses = [trainer.fit(every, 2, dice(epoch)) for epoch in range(5)]
    assert losses[-1] < losses[0]
    assert head.linear[1] > head.linear[0] + 1
    assert head.linear[2] == 0
