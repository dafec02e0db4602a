"""The full softmax, in chunks and over sharded rows, against torch's dense one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from dayahead.distributed.sharding import Shard
from dayahead.model import output_layer
from dayahead.model.output_layer import OutputLayer, rows_per_chunk
from support.dense_softmax import (
    Halves,
    dense,
    problem,
    relative_errors,
    rows_of,
    with_gradients,
)
from support.tiny_settings import loss_config, loss_of


def chunked(states, table, bias, targets, smoothing=0.0, budget=3, *, temperature=1.0):
    config = loss_config(
        label_smoothing=smoothing, logits_budget_mib=budget, temperature=temperature
    )
    return loss_of(config, states, table, bias, targets)


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.3]),
    st.integers(0, 99),
)
def test_any_shape_and_chunk_gives_the_dense_loss(n_targets, n_items, n_rows, smoothing, seed):
    *parts, targets = problem(n_targets, n_items, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_layer, "rows_per_chunk", rows_of(n_rows))
        found = with_gradients(chunked(*parts, targets, smoothing), *parts)
    wanted = with_gradients(dense(*parts, targets, smoothing), *parts)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("n_rows", [1, 7, 23, 1000])
def test_any_chunk_gives_the_dense_loss(chunk_rows, n_rows, smoothing):
    chunk_rows(n_rows)
    *parts, targets = problem(n_targets=23, n_items=50)
    loss = chunked(*parts, targets, smoothing)
    wanted = with_gradients(dense(*parts, targets, smoothing), *parts)
    for found, value in zip(with_gradients(loss, *parts), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-6, atol=6e-6)


@pytest.mark.parametrize("n_rows", [2, 100])
def test_float64_is_the_dense_loss_to_its_last_digits(chunk_rows, n_rows):
    chunk_rows(n_rows)
    *parts, targets = problem(n_targets=5, n_items=6, dim=3)
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = with_gradients(dense(*exact, targets), *exact)
    for found, value in zip(with_gradients(chunked(*exact, targets), *exact), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("n_items", "minimum", "wanted"),
    [(1000, 8, 3 * 2**20 // 4000), (10**6, 1, 1), (10**6, 128, 128), (0, 1, 3 * 2**18)],
)
def test_the_budget_counts_mebibytes_of_float32_scores(n_items, minimum, wanted):
    assert rows_per_chunk(n_items, 3, minimum) == wanted


@pytest.mark.parametrize(("n_items", "wanted"), [(1000, 3 * 2**20 // 4000 // 32 * 32), (10**6, 8)])
def test_chunks_fit_the_budget_with_at_least_as_many_states_as_dimensions(
    monkeypatch, n_items, wanted
):
    found = []
    differentiate = output_layer._ChunkLoss.differentiate

    def watched(self, products, targets):
        found.append((len(products), len(targets)))
        differentiate(self, products, targets)

    monkeypatch.setattr(output_layer._ChunkLoss, "differentiate", watched)
    *parts, targets = problem(n_targets=wanted + 1, n_items=n_items)
    chunked(*parts, targets, budget=3)
    assert found == [(wanted, wanted), (min(wanted, output_layer.ROW_STEP), 1)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_targets_the_loss_and_all_gradients_are_zero(smoothing):
    *parts, targets = problem(n_targets=0, n_items=50)
    for found in with_gradients(chunked(*parts, targets, smoothing), *parts):
        assert not found.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_is_within_its_rounding(smoothing):
    *parts, targets = problem(n_targets=200, n_items=50)
    wanted = with_gradients(dense(*parts, targets, smoothing), *parts)
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked(*parts, targets, smoothing)
    assert loss.dtype == torch.float32
    for found, value in zip(with_gradients(loss, *parts), wanted, strict=True):
        assert found.dtype == torch.float32
        assert (found - value).norm() <= 0.02 * value.norm()


@pytest.mark.parametrize("n_rows", [8, 100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_bfloat16_products_are_summed_in_float32(chunk_rows, n_rows):
    """Relative to the exact sums over the same rounded inputs; bfloat16 itself rounds by .004."""
    chunk_rows(n_rows)
    *parts, targets = problem(n_targets=4_000, n_items=50, scale=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked(*parts, targets)
    *rounded, bias = (part.detach().double() for part in parts)
    rounded = [each.bfloat16().double() for each in rounded]
    rounded = [each.requires_grad_() for each in (*rounded, bias)]
    exact = with_gradients(dense(*rounded, targets), *rounded)
    limits = (1e-5, 0.003, 0.003, 1e-4)  # loss, states, table, bias
    for found, wanted, limit in zip(with_gradients(loss, *parts), exact, limits, strict=True):
        assert (found - wanted).norm() <= limit * wanted.norm()


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_the_bfloat16_bias_gradient_of_a_frequent_item_is_exact(spread):
    """A sum of ones stops growing at 256 in bfloat16; here one item has 600 targets of 1,000."""
    states, table, bias, targets = problem(n_targets=1_000, n_items=500, dim=64)
    targets[:600] = 3
    parts = [(spread * part).detach().requires_grad_() for part in (states, table, bias)]
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked(*parts, targets)
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = dense(*exact, targets)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-4, atol=0)
    [found], [gradient] = (
        torch.autograd.grad(each, [of[2]]) for each, of in [(loss, parts), (wanted, exact)]
    )
    assert (found - gradient).norm() <= 0.01 * gradient.norm()
    torch.testing.assert_close(found[3].double(), gradient[3], rtol=0.01, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_target_of_high_probability_has_an_exact_bias_gradient(chunk_rows, dtype):
    chunk_rows(8)
    states, table, _, targets = problem(20, 6, 4)
    large = torch.zeros(6).index_fill(0, torch.tensor(3), 8.5)
    parts = [part.detach().requires_grad_() for part in (states * 0, table, large)]
    targets = targets * 0 + 3
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = with_gradients(chunked(*parts, targets), *parts)[3]
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = with_gradients(dense(*exact, targets), *exact)[3]
    assert 0 < -wanted[3] < 20 * 3 * 0.002
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tensor_is_larger_than_the_budget(smoothing):
    n_targets, n_items, budget = 300, 10_000, 2  # dense logits: 11 MiB
    *parts, targets = problem(n_targets, n_items)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        loss = chunked(*parts, targets, smoothing, budget)
        loss.backward()
    largest = max(event.self_cpu_memory_usage for event in record.events())
    assert 0 < largest <= budget * 2**20


@pytest.mark.parametrize("temperature", [0.25, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_temperature_divides_the_scores(smoothing, temperature):
    states, table, bias, targets = problem(n_targets=7, n_items=50)
    loss = chunked(states, table, bias, targets, smoothing, temperature=temperature)
    wanted = dense(states / temperature, table, bias / temperature, targets, smoothing)
    parts = (states, table, bias)
    pairs = zip(with_gradients(loss, *parts), with_gradients(wanted, *parts), strict=True)
    for found, value in pairs:
        torch.testing.assert_close(found, value, rtol=1e-5, atol=3e-5)


class TestSharded:
    """In threads; processes are compared with one in tests/unit/train/test_sharded_state.py."""

    @staticmethod
    def loss(states, table, bias, targets):
        return Halves().loss(states, table, bias, targets, loss_config(logits_budget_mib=3))

    def relative_error(self, parts, targets):
        return max(relative_errors(self.loss(*parts, targets), parts, targets))

    @settings(max_examples=40)
    @given(
        st.integers(1, 40),
        st.integers(2, 60),
        st.integers(1, 50),
        st.sampled_from([1.0, 10.0]),
        st.integers(0, 99),
    )
    def test_loss_and_gradients_are_the_dense_ones(self, n_targets, n_items, n_rows, scale, seed):
        *parts, targets = problem(n_targets, n_items, 4, seed, scale)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(output_layer, "rows_per_chunk", rows_of(n_rows))
            assert self.relative_error(parts, targets) <= 3e-5  # of 3 * loss

    def test_scores_beyond_the_range_of_exp(self, chunk_rows):
        chunk_rows(2)
        states, table, bias, targets = problem(5, 7, 4)
        large = (bias + 1e4).detach().requires_grad_()
        assert self.relative_error([states, table, large], targets) <= 1e-3

    @pytest.mark.parametrize("item", [3, 4])
    def test_targets_that_the_items_of_the_other_process_make_impossible(self, chunk_rows, item):
        chunk_rows(8)
        states, table, bias, _ = problem(20, 7, 4)
        large = bias.detach().index_fill(0, torch.tensor(3), 300.0).requires_grad_()
        assert self.relative_error([states, table, large], torch.full((20,), item)) <= 1e-5

    def test_without_targets_the_loss_and_all_gradients_are_zero(self):
        *parts, targets = problem(0, 7, 4)
        for found in with_gradients(self.loss(*parts, targets), *parts):
            assert not found.any()

    def test_a_target_of_high_probability_has_an_exact_gradient_in_bfloat16(self, chunk_rows):
        """1 minus a probability of .999, itself in bfloat16, would be 0."""
        chunk_rows(8)
        states, table, bias, targets = problem(20, 6, 4)
        large = torch.zeros(6).index_fill(0, torch.tensor(3), 8.5)
        parts = [part.detach().requires_grad_() for part in (states * 0, table, bias * 0 + large)]
        targets = targets * 0 + 3
        with torch.autocast("cpu", torch.bfloat16):
            found = with_gradients(self.loss(*parts, targets), *parts)
        wanted = with_gradients(dense(*parts, targets), *parts)
        assert 0 < -wanted[3][3] < 20 * 3 * 0.002
        torch.testing.assert_close(found[3][3], wanted[3][3], rtol=1e-3, atol=0)
        torch.testing.assert_close(found[3], wanted[3], rtol=0.004, atol=0)

    def test_bfloat16_is_near_and_summed_in_float32(self, chunk_rows):
        chunk_rows(8)
        *parts, targets = problem(40, 30, 4)
        halves = [part.detach().bfloat16().requires_grad_() for part in parts]
        assert self.loss(*halves, targets).dtype == torch.float32
        assert self.relative_error(halves, targets) <= 0.01

    @pytest.mark.parametrize("world", [1, 2, 5])
    def test_each_process_has_its_items_columns_in_their_order(self, world, monkeypatch):
        monkeypatch.setattr(output_layer, "COPIED_ROWS", 2)
        items, table, bias = torch.tensor([7, 0, 4, 4, 11, 3]), torch.eye(12), torch.arange(12.0)
        for rank in range(world):
            layer = OutputLayer(table[rank::world], bias[rank::world], 12, Shard(rank, world))
            columns = layer.own_columns(items)
            own = [i for i in items.tolist() if i % world == rank]
            assert columns[:-1].T.tolist() == table[own].tolist()
            assert columns[-1].tolist() == own
