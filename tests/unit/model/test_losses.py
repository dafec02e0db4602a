"""Sampled losses by hand, against loops over pairs, and what must not change them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.profiler import ProfilerActivity, profile

from dayahead.model import losses, output_layer
from dayahead.model.losses import SAMPLED_LOSSES, Negatives, Scores, weighted_loss
from dayahead.model.output_layer import OutputLayer
from support.tiny_settings import loss_config, loss_of

NAMES = ("sampled_softmax", *SAMPLED_LOSSES)
every_loss = pytest.mark.parametrize("name", NAMES)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def problem(n_targets=7, n_items=20, n_negatives=9, dim=4, seed=0, dtype=torch.float32):
    """Hidden states, table, bias (all requiring gradients), targets and negatives."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_()
        for shape in ((n_targets, dim), (n_items, dim), (n_items,))
    ]
    targets = torch.randint(0, n_items, (n_targets,), generator=generator)
    items = torch.randint(0, n_items, (n_negatives,), generator=generator)
    return *parts, targets, Negatives(items, torch.randn(n_negatives, generator=generator))


def with_gradients(loss, *parts):
    return [loss.detach(), *torch.autograd.grad(loss, parts)]


def assert_all_close(found, wanted, **tolerances):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, **tolerances)


def loss_of_scores(config, scores, target, negatives, expected):
    """The loss of one target, from the scores of all items."""
    table, bias = torch.tensor(scores)[:, None], torch.zeros(len(scores))
    sampled = Negatives(torch.tensor(negatives), torch.tensor(expected).log())
    return loss_of(config, torch.ones(1, 1), table, bias, torch.tensor([target]), sampled).item()


def pairwise(config, hidden, table, bias, targets, negatives):
    """The definitions, target by target and negative by negative."""
    scores = (hidden @ table.T + bias) / config.temperature
    total = 0.0 * scores.sum()
    for row, target in zip(scores, targets.tolist(), strict=True):
        others = [i for i, item in enumerate(negatives.items.tolist()) if item != target]
        s = [row[negatives.items[i]] for i in others]
        odds = [negatives.log_expected[i] for i in others]
        total = total + ORACLES[config.name](row[target], s, odds, len(table), config)
    return total


def oracle_sampled_softmax(target, scores, log_expected, n_items, config):
    terms = [
        torch.exp(s) / torch.exp(e) ** config.logq
        for s, e in zip(scores, log_expected, strict=True)
    ]
    return -torch.log(torch.exp(target) / (torch.exp(target) + sum(terms)))


def oracle_gbce(target, scores, log_expected, n_items, config):
    rate = len(scores) / (n_items - 1)
    if not rate:
        return -(1 - config.gbce_calibration) * torch.log(torch.sigmoid(target))
    t = config.gbce_calibration
    beta = rate * (t * (1 - 1 / rate) + 1 / rate)
    terms = [torch.log(1 - torch.sigmoid(s)) for s in scores]
    return -(torch.log(torch.sigmoid(target) ** beta) + sum(terms)) / (len(scores) + 1)


def oracle_bpr(target, scores, log_expected, n_items, config):
    return sum(-torch.log(torch.sigmoid(target - s)) for s in scores) / max(len(scores), 1)


def softmax_weights(scores):
    return torch.softmax(torch.stack(scores), 0)


def oracle_bpr_max(target, scores, log_expected, n_items, config):
    if not scores:
        return 0.0
    if config.elu:
        target, *scores = (
            s if s > 0 else config.elu * (torch.exp(s) - 1) for s in (target, *scores)
        )
    pairs = list(zip(softmax_weights(scores), scores, strict=True))
    likelihood = sum(w * torch.sigmoid(target - s) for w, s in pairs)
    penalty = config.bpr_max_regularisation * sum(w * s * s for w, s in pairs)
    return -torch.log(likelihood) + penalty


def oracle_top1(target, scores, log_expected, n_items, config):
    terms = [torch.sigmoid(s - target) + torch.sigmoid(s * s) for s in scores]
    return sum(terms) / max(len(scores), 1)


def oracle_top1_max(target, scores, log_expected, n_items, config):
    if not scores:
        return 0.0
    terms = [torch.sigmoid(s - target) + torch.sigmoid(s * s) for s in scores]
    return sum(w * term for w, term in zip(softmax_weights(scores), terms, strict=True))


ORACLES = {name: globals()[f"oracle_{name}"] for name in NAMES}

WEIGHTS = (1 / (1 + math.e**2), math.e**2 / (1 + math.e**2))
BY_HAND = {
    "sampled_softmax": math.log(math.e + 1 / 0.5 + math.e**2 / 2) - 1,
    # Two others of four: the rate is 1/2, so beta is 1 - .75 / 2.
    "gbce": -(0.625 * math.log(sigmoid(1)) + math.log(1 - sigmoid(0)) + math.log(1 - sigmoid(2)))
    / 3,
    "bpr": -(math.log(sigmoid(1)) + math.log(sigmoid(-1))) / 2,
    "bpr_max": -math.log(WEIGHTS[0] * sigmoid(1) + WEIGHTS[1] * sigmoid(-1)) + 0.5 * WEIGHTS[1] * 4,
    "top1": (sigmoid(-1) + sigmoid(0) + sigmoid(1) + sigmoid(4)) / 2,
    "top1_max": WEIGHTS[0] * (sigmoid(-1) + sigmoid(0)) + WEIGHTS[1] * (sigmoid(1) + sigmoid(4)),
}


@every_loss
def test_one_target_by_hand(name):
    """A target of score 1, negatives of 0 (expected 1/2 times) and 2 (2 times), and itself."""
    config = loss_config(name=name, gbce_calibration=0.75, bpr_max_regularisation=0.5)
    found = loss_of_scores(config, [0.0, 1.0, 2.0, 7.0, 7.0], 1, [0, 1, 2], [0.5, 9.0, 2.0])
    assert found == pytest.approx(BY_HAND[name], rel=1e-6)


def test_the_losses_of_gru4rec_by_hand():
    """Scores 1 (target), -1 and 2; sampled softmax: negatives expected 1/4 and 4 times."""
    args = [1.0, -1.0, 2.0], 0, [1, 2], [0.25, 4.0]
    e = math.e
    for logq, terms in ((0.0, [1 / e, e**2]), (0.5, [2 / e, e**2 / 2]), (1.0, [4 / e, e**2 / 4])):
        config = loss_config(name="sampled_softmax", logq=logq)
        assert loss_of_scores(config, *args) == pytest.approx(
            math.log(e + sum(terms)) - 1, rel=1e-6
        )
    low = 0.5 * (1 / e - 1)  # the ELU of -1
    weights = [math.exp(low) / (math.exp(low) + e**2), e**2 / (math.exp(low) + e**2)]
    wanted = -math.log(weights[0] * sigmoid(1 - low) + weights[1] * sigmoid(-1))
    wanted += 1.5 * (weights[0] * low**2 + weights[1] * 4)
    config = loss_config(name="bpr_max", elu=0.5, bpr_max_regularisation=1.5)
    assert loss_of_scores(config, *args) == pytest.approx(wanted, rel=1e-6)


@every_loss
@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(2, 9), st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_any_shape_equals_the_loops(name, n_targets, n_items, n_negatives, seed, is_warm):
    *parts, targets, negatives = problem(
        n_targets, n_items, n_negatives, seed=seed, dtype=torch.float64
    )
    other = {"temperature": 2.0, "logq": 0.3, "elu": 0.5} if is_warm else {}
    config = loss_config(name=name, bpr_max_regularisation=0.3, **other)
    found = with_gradients(loss_of(config, *parts, targets, negatives), *parts)
    wanted = with_gradients(pairwise(config, *parts, targets, negatives), *parts)
    assert_all_close(found, wanted, rtol=1e-6, atol=1e-6)


@every_loss
@pytest.mark.parametrize("n_rows", [1, 3, 100])
def test_any_chunk_gives_the_same(monkeypatch, name, n_rows):
    *parts, targets, negatives = problem()
    config = loss_config(name=name, logits_budget_mib=1)
    wanted = with_gradients(loss_of(config, *parts, targets, negatives), *parts)
    for module in (losses, output_layer):
        monkeypatch.setattr(module, "rows_per_chunk", lambda *_: n_rows)
    found = with_gradients(loss_of(config, *parts, targets, negatives), *parts)
    assert_all_close(found, wanted, rtol=1e-5, atol=1e-6)


@every_loss
def test_a_target_with_itself_as_only_negative_has_zero_gradient(name):
    *parts, _, _ = problem(n_targets=2)
    targets, negatives = torch.tensor([3, 3]), Negatives(torch.tensor([3, 3]), torch.zeros(2))
    config = loss_config(name=name, bpr_max_regularisation=0.3, gbce_calibration=1.0)
    for found in with_gradients(loss_of(config, *parts, targets, negatives), *parts):
        assert not found.any()  # finite too: NaN counts as true


@every_loss
def test_scores_far_apart_stay_finite(name):
    *parts, targets, negatives = problem()
    config = loss_config(name=name, temperature=1e-3, bpr_max_regularisation=0.3)
    for found in with_gradients(loss_of(config, *parts, targets, negatives), *parts):
        assert torch.isfinite(found).all()


@every_loss
def test_without_targets_the_loss_and_all_gradients_are_zero(name):
    *parts, targets, negatives = problem(n_targets=0)
    loss = loss_of(loss_config(name=name), *parts, targets, negatives)
    for found in with_gradients(loss, *parts):
        assert not found.any()


@every_loss
def test_bfloat16_is_within_its_rounding(name):
    *parts, targets, negatives = problem(n_targets=200, n_items=50, n_negatives=30)
    config = loss_config(name=name)
    wanted = with_gradients(loss_of(config, *parts, targets, negatives), *parts)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(config, *parts, targets, negatives)
    for found, value in zip(with_gradients(loss, *parts), wanted, strict=True):
        assert found.dtype == torch.float32
        assert (found - value).norm() <= 0.02 * value.norm()


@every_loss
def test_no_tensor_is_larger_than_the_budget(name):
    """Dense scores would take 6 MiB."""
    *parts, targets, negatives = problem(n_targets=1_000, n_items=2_000, n_negatives=1_500)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        config = loss_config(name=name, logits_budget_mib=1)
        loss_of(config, *parts, targets, negatives).backward()
    assert 0 < max(event.self_cpu_memory_usage for event in record.events()) <= 2**20


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sampled_softmax_with_every_item_once_is_the_softmax(smoothing, temperature):
    hidden, table, bias, targets, _ = problem()
    every = Negatives(torch.arange(len(table)), torch.zeros(len(table)))
    config = loss_config(name="sampled_softmax", label_smoothing=smoothing, temperature=temperature)
    logits = (hidden @ table.T + bias) / temperature
    dense = cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    parts = (hidden, table, bias)
    found = with_gradients(loss_of(config, *parts, targets, every), *parts)
    assert_all_close(found, with_gradients(dense, *parts), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("t", [0.0, 0.4, 0.75, 1.0])
def test_gbce_is_a_binary_cross_entropy_of_the_papers_transformed_score(t):
    """Section 5.3: s+ becomes log(1 / (sigmoid(s+)^-beta - 1)), beta from t and the rate."""
    target, negatives = torch.tensor([0.7], dtype=torch.float64), torch.tensor([[-0.2, 0.4]])
    rate = 2 / 99
    beta = rate * ((1 - 1 / rate) * t + 1 / rate)
    shifted = torch.log(1 / (torch.sigmoid(target) ** -beta - 1))
    logits = torch.cat([shifted, negatives[0].double()])
    labels = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    scores = Scores(target, negatives, torch.ones(1, 2, dtype=torch.bool), 100)
    found = SAMPLED_LOSSES["gbce"](scores, loss_config(name="gbce", gbce_calibration=t))
    wanted = binary_cross_entropy_with_logits(logits, labels)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "label_smoothing"),
    [("softmax", 0.2), ("sampled_softmax", 0.2), *((name, 0.0) for name in ("softmax", *NAMES))],
)
def test_a_weighted_loss_is_the_sum_of_weighted_losses(name, label_smoothing):
    hidden, table, bias, targets, negatives = problem(n_targets=6, dtype=torch.float64)
    config = loss_config(name=name, label_smoothing=label_smoothing)
    sampled = None if name == "softmax" else negatives
    weights = torch.tensor([1.0, 0.5, 10.0, 0.0, 0.5, 1.0])
    layer = OutputLayer(table, bias, len(table))
    values = [0.0, 0.5, 1.0, 10.0, 77.0]  # another process may have targets of another weight
    found = weighted_loss(config, hidden, layer, targets, sampled, weights, values)
    expected = sum(
        weight * loss_of(config, hidden[[n]], table, bias, targets[[n]], sampled)
        for n, weight in enumerate(weights.tolist())
    )
    parts = hidden, table, bias
    assert_all_close(
        with_gradients(found.double(), *parts), with_gradients(expected.double(), *parts)
    )
