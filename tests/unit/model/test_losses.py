"""The chunked softmax against torch's dense one: value, gradients, memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from dayahead.model import losses
from support.tiny_settings import loss_config, loss_of


def problem(n_targets, n_items, dim=8, seed=0):
    """Hidden states, table, bias (all wanting gradients) and targets."""
    draw = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(shape, generator=draw).requires_grad_()
        for shape in ((n_targets, dim), (n_items, dim), (n_items,))
    ]
    return *parts, torch.randint(0, n_items, (n_targets,), generator=draw)


def with_gradients(loss, hidden, table, bias):
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, table, bias))]


def dense(hidden, table, bias, targets, smoothing):
    logits = hidden @ table.T + bias
    return cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")


def full(hidden, table, bias, targets, smoothing, budget=1):
    config = loss_config(label_smoothing=smoothing, logits_budget_mib=budget)
    return loss_of(config, hidden, table, bias, targets, None)


@pytest.fixture
def rows_per_chunk(monkeypatch):
    """Set how many rows of logits are computed at once."""

    def set_rows(n_rows):
        monkeypatch.setattr(losses, "_rows_per_chunk", lambda n_items, dim, budget: n_rows)

    return set_rows


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("n_rows", [1, 2, 7, 23, 24, 1000])
def test_any_chunk_equals_the_dense_loss(rows_per_chunk, n_rows, smoothing):
    rows_per_chunk(n_rows)
    *parts, targets = problem(n_targets=23, n_items=50)
    loss = full(*parts, targets, smoothing)
    wanted = with_gradients(dense(*parts, targets, smoothing), *parts)
    for found, value in zip(with_gradients(loss, *parts), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-6, atol=2e-6)


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 60), st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_any_shape_equals_the_dense_loss(n_targets, n_items, smoothing, seed):
    *parts, targets = problem(n_targets, n_items, seed=seed)
    loss = full(*parts, targets, smoothing)
    torch.testing.assert_close(loss, dense(*parts, targets, smoothing), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("n_items", "dim", "wanted"),
    [(1000, 8, 3 * 2**20 // 4000), (10**6, 8, 8), (10**6, 128, 128)],
)
def test_the_budget_counts_mebibytes_of_logits_and_never_less_than_the_table(n_items, dim, wanted):
    assert losses._rows_per_chunk(n_items, dim, logits_budget_mib=3) == wanted


def test_the_chunks_are_those_of_the_budget(monkeypatch):
    asked = []

    def watched(*args, options, **kwargs):
        asked.append(options.batch_chunk_size)
        return torch.nn.functional.linear_cross_entropy(*args, options=options, **kwargs)

    monkeypatch.setattr(losses, "linear_cross_entropy", watched)
    *parts, targets = problem(n_targets=5, n_items=1000)
    full(*parts, targets, 0.0, budget=3)
    assert asked == [3 * 2**20 // 4000]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nothing_asked_costs_nothing_but_reaches_everything(smoothing):
    *parts, targets = problem(n_targets=0, n_items=50)
    loss = full(*parts, targets, smoothing)
    for found in with_gradients(loss, *parts):
        assert not found.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_comes_within_its_rounding(smoothing):
    *parts, targets = problem(n_targets=200, n_items=50)
    wanted = with_gradients(dense(*parts, targets, smoothing), *parts)
    with torch.autocast("cpu", torch.bfloat16):
        loss = full(*parts, targets, smoothing)
    assert loss.dtype == torch.float32
    for found, value in zip(with_gradients(loss, *parts), wanted, strict=True):
        assert found.dtype == torch.float32
        assert (found - value).norm() <= 0.02 * value.norm()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tensor_is_larger_than_the_budget(smoothing):
    n_targets, n_items, budget = 600, 20_000, 4  # dense logits: 46 MiB
    *parts, targets = problem(n_targets, n_items)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        loss = full(*parts, targets, smoothing, budget)
        loss.backward()
    largest = max(event.self_cpu_memory_usage for event in record.events())
    assert 0 < largest <= budget * 2**20


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_temperature_divides_the_scores(smoothing, temperature):
    hidden, table, bias, targets = problem(n_targets=7, n_items=50)
    config = loss_config(temperature=temperature, label_smoothing=smoothing)
    loss = loss_of(config, hidden, table, bias, targets, None)
    logits = (hidden @ table.T + bias) / temperature
    wanted = cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    parts = (hidden, table, bias)
    pairs = zip(with_gradients(loss, *parts), with_gradients(wanted, *parts), strict=True)
    for found, value in pairs:
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-5)
