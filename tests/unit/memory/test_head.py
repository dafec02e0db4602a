"""The head and its training: gradients, standardising, replay, what explains a score."""

from dataclasses import replace

import pytest
import torch

from dayahead.memory.examples import Examples, Replay
from dayahead.memory.explain import contributions
from dayahead.memory.head import Head, Mixture
from dayahead.memory.training import HeadTrainer
from support.memory_models import CONFIG


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def examples(n, n_candidates=4, n_features=3, n_context=2, seed=0):
    """The next item is the candidate of the largest first feature; the last is padding."""
    features = torch.randn(n, n_candidates, n_features, generator=dice(seed))
    is_candidate = torch.ones(n, n_candidates, dtype=torch.bool)
    is_candidate[:, -1] = False
    targets = features[:, :-1, 0].argmax(1)
    return Examples(features, is_candidate, torch.randn(n, n_context, generator=dice(1)), targets)


def test_the_loss_falls_and_the_head_ranks_the_next_item_first():
    head = Head(3, 2, 8, seed=0)
    trainer = HeadTrainer(head, replace(CONFIG, learning_rate=0.05, min_steps=0))
    every = examples(400)
    losses = [trainer.fit(every, 2, dice(epoch)) for epoch in range(5)]
    assert losses[-1] < 0.3 < losses[0]
    scores = head(every.features, every.context).masked_fill(~every.is_candidate, -torch.inf)
    assert (scores.argmax(1) == every.targets).float().mean() > 0.9


def test_padding_gets_no_gradient():
    every = examples(10)
    every.features[:, -1] = 1e6
    head = Head(3, 2, 0, seed=0)
    HeadTrainer(head, replace(CONFIG, weight_decay=0.0)).fit(every, 1, dice())
    other = Head(3, 2, 0, seed=0)
    HeadTrainer(other, replace(CONFIG, weight_decay=0.0)).fit(examples(10), 1, dice())
    assert torch.equal(head.linear, other.linear)


def test_without_examples_nothing_is_learned():
    head = Head(3, 2, 8, seed=0)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert HeadTrainer(head, CONFIG).fit(examples(0), 2, dice()) is None
    head.learn_scale(examples(0))
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_candidates_are_standardised_padding_not_counted():
    every = examples(500)
    every.features[..., 1] = every.features[..., 1] * 5 + 3
    every.features[:, :, 2] = 7.0
    every.features[:, -1] = 1e6
    head = Head(3, 2, 8, seed=0)
    head.learn_scale(every)
    scaled = head.scaled(every).features[:, :-1].flatten(0, 1)
    assert scaled.mean(0) == pytest.approx(torch.zeros(3), abs=1e-4)
    assert scaled.std(0) == pytest.approx(torch.tensor([1.0, 1.0, 0.0]), abs=1e-2)
    assert head.scaled(every).features.max() == 8  # outliers are cut off


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
    head = Head(3, 2, width, seed=0)
    head.out.data[:] = torch.randn(width, generator=dice())
    head.linear.data[:] = torch.randn(3, generator=dice(1))
    every = examples(1, n_candidates=6)
    features, context = every.features[0], every.context[0]
    found = contributions(head, features, context, column=2)
    both = torch.stack([features[2], features.mean(0)])
    lead = head(both[None], context[None])[0].detach()
    assert float(found.sum()) == pytest.approx(float(lead[0] - lead[1]), abs=0.02)


def test_of_a_linear_head_a_contribution_is_weight_times_difference():
    head = Head(3, 2, 0, seed=0)
    head.linear.data[:] = torch.tensor([1.0, -2.0, 0.0])
    features = torch.tensor([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]])
    found = contributions(head, features, torch.zeros(2), column=1)
    assert found.tolist() == pytest.approx([1, -2, 0])


def test_a_mixture_by_hand():
    """Two sources that give an item .5 and .1, mixed as 3 to 1; the third feature is no source."""
    head = Mixture([True, True, False], 2, seed=0)
    head.linear.data = torch.tensor([3.0, 1.0, 99.0]).log()
    logs = torch.tensor([[[0.5, 0.1, 7.0], [0.2, 0.6, -7.0]]]).log().nan_to_num()
    every = Examples(logs, torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2), torch.tensor([0]))
    expected = torch.tensor([[0.75 * 0.5 + 0.25 * 0.1, 0.75 * 0.2 + 0.25 * 0.6]])
    assert head(every.features, every.context).exp().tolist()[0] == pytest.approx(
        expected.tolist()[0]
    )
    head.features_mean[:], head.features_std[:] = 2.0, 3.0
    scaled = head.scaled(every)
    assert head(scaled.features, scaled.context).exp().tolist()[0] == pytest.approx(
        expected.tolist()[0]
    )


def test_a_mixture_learns_which_source_is_right():
    """The next item is the one that the first of two sources expects."""
    right = torch.randn(400, 4, generator=dice(2)).log_softmax(1)
    wrong = torch.randn(400, 4, generator=dice(3)).log_softmax(1)
    features = torch.stack([wrong, 3 * right, right], dim=2)
    every = Examples(
        features, torch.ones(400, 4, dtype=torch.bool), torch.zeros(400, 0), right.argmax(1)
    )
    head = Mixture([True, True, False], 0, seed=0)
    trainer = HeadTrainer(head, replace(CONFIG, learning_rate=0.05))
    losses = [trainer.fit(every, 2, dice(epoch)) for epoch in range(5)]
    assert losses[-1] < losses[0]
    assert head.linear[1] > head.linear[0] + 1
    assert head.linear[2] == 0
