"""rtd: what replaces the masked items, how the two losses add up, and what each one trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from dayahead.model.next_item import NextItemModel
from dayahead.model.output_layer import OutputLayer
from dayahead.model.rtd import generator_samples
from support.tiny_settings import columns_of, padded, step_random, tiny_model

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]
N_ITEMS = 40

every_replacement = pytest.mark.parametrize("replacements", ["batch", "catalogue"])


def rtd_model(architecture="bert", *, n_head=2, **task) -> NextItemModel:
    return tiny_model(architecture, "rtd", n_items=N_ITEMS, n_head=n_head, task_settings=task)


def batch(sessions=SESSIONS, seed=0):
    items, lengths = padded(sessions)
    return columns_of(items), lengths, step_random(items, seed)


@contextmanager
def recorded_inputs(model: NextItemModel) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The columns of each pass, in order: the generator's, then the discriminator's."""
    passes: list[dict[str, torch.Tensor]] = []
    hook = model.inputs.register_forward_pre_hook(lambda _, given: passes.append(given[0]))
    yield passes
    hook.remove()


def samples_of(hidden, layer, offsets, budget=64):
    rng = step_random(padded([[2, 3]])[0])
    return generator_samples(hidden, layer, offsets, rng, logits_budget_mib=budget)


def test_samples_have_the_softmax_distribution():
    table = torch.tensor([[0.0], [1.0], [2.0], [-1.0]])
    bias = torch.tensor([0.5, 0.0, -0.5, 0.0])
    offsets = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    found = samples_of(torch.ones(40_000, 1), OutputLayer(table, bias, len(table)), offsets)
    shares = torch.bincount(found, minlength=4) / len(found)
    torch.testing.assert_close(shares, (table[:, 0] + bias).softmax(0), atol=0.01, rtol=0)


def test_two_samples_from_one_strip_of_noise_are_equal_by_chance_alone():
    n_items = 10
    layer = OutputLayer(torch.zeros(n_items, 1), torch.zeros(n_items), n_items)
    offsets = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    found = samples_of(torch.ones(10_000, 1), layer, offsets)
    are_equal = found[:5_000] == found[5_000:]
    assert are_equal.float().mean().item() == pytest.approx(1 / n_items, abs=0.01)


def test_samples_do_not_depend_on_chunks():
    noise = torch.Generator().manual_seed(0)
    hidden, table = torch.randn(50, 8, generator=noise), torch.randn(30_000, 8, generator=noise)
    layer = OutputLayer(table, torch.zeros(30_000), 30_000)
    offsets = torch.rand(50, generator=noise)
    small, large = (samples_of(hidden, layer, offsets, budget) for budget in (1, 64))
    assert torch.equal(small, large)


@pytest.mark.long
@every_replacement
@given(st.integers(0, 2**31))
@settings(max_examples=20)
def test_replacements_come_from_the_masked_items_or_the_catalogue(replacements, seed):
    model = rtd_model(rtd_replacements=replacements).eval()  # in training sessions are packed
    columns, lengths, rng = batch(seed=seed)
    with recorded_inputs(model) as passes:
        model(columns, lengths, rng)
    first, second = passes
    items = columns["item_id"]
    is_masked = model.task.training_positions(items, lengths, rng)[0].is_masked
    assert torch.equal(first["item_id"], items)
    assert torch.equal(second["item_id"][~is_masked], items[~is_masked])
    allowed = items[is_masked].tolist() if replacements == "batch" else range(2, 2 + N_ITEMS)
    assert set(second["item_id"][is_masked].tolist()) <= set(allowed)


def test_catalogue_replacements_include_items_of_no_session():
    model = rtd_model(rtd_replacements="catalogue")
    found = set()
    for seed in range(20):
        columns, lengths, rng = batch(seed=seed)
        with recorded_inputs(model) as passes:
            model(columns, lengths, rng)
        found |= set(passes[1]["item_id"].flatten().tolist())
    assert len(found - set(sum(SESSIONS, [0]))) > 5


def test_only_the_item_is_replaced():
    model = rtd_model().eval()  # in training sessions are packed
    columns, lengths, rng = batch()
    with recorded_inputs(model) as passes:
        model(columns, lengths, rng)
    assert not torch.equal(passes[1]["item_id"], columns["item_id"])
    assert torch.equal(passes[1]["category"], columns["category"])
    assert torch.equal(passes[1]["price"], columns["price"])


def discriminator_scores(model, discriminator, columns, lengths):
    inputs = model.inputs(columns, model.inputs.items(columns["item_id"]))
    return discriminator.head(model.body(inputs, lengths))[..., 0]


@pytest.mark.parametrize("n_past", [0, 2])
def test_the_loss_is_the_weighted_sum_of_both_means(n_past):
    """The discriminator's over the sessions' own events, without the past."""
    weights = {"rtd_generator_weight": 2.0, "rtd_discriminator_weight": 3.0}
    model = rtd_model(**weights).eval()
    columns, lengths, rng = batch()
    rng = replace(rng, global_n_past=torch.tensor([n_past, 0, 0]))
    with recorded_inputs(model) as passes:
        loss, n_targets = model(columns, lengths, rng)
    replaced = passes[1]
    discriminator, model.detector = model.detector, None
    generator_loss, n_masked = model(columns, lengths, rng)
    assert n_targets == n_masked
    steps = torch.arange(6)
    is_own = (steps < lengths[:, None]) & (steps >= rng.global_n_past[:, None])
    scores = discriminator_scores(model, discriminator, replaced, lengths)[is_own]
    is_replaced = (replaced["item_id"] != columns["item_id"])[is_own]
    assert is_replaced.any()
    found = binary_cross_entropy_with_logits(scores, is_replaced.float())
    torch.testing.assert_close(loss / n_targets, 2 * generator_loss / n_masked + 3 * found)


def test_a_sample_equal_to_the_original_counts_as_original():
    """Sessions of one item: the masked items hold nothing else to sample."""
    model = rtd_model().eval()
    columns, lengths, rng = batch([[5, 5, 5, 5], [5, 5, 5]])
    loss, n_targets = model(columns, lengths, rng)
    discriminator, model.detector = model.detector, None
    generator_loss, _ = model(columns, lengths, rng)
    scores = discriminator_scores(model, discriminator, columns, lengths)
    is_event = torch.arange(4) < lengths[:, None]
    original = binary_cross_entropy_with_logits(scores[is_event], torch.zeros(7))
    torch.testing.assert_close(loss / n_targets, generator_loss / n_targets + original)


def test_sampling_has_no_gradient():
    """The discriminator's loss trains no output bias, but the backbone that scores items."""
    model = rtd_model()
    columns, lengths, rng = batch()
    positions, _ = model.task.training_positions(columns["item_id"], lengths, rng)
    states = model._output_states(columns, positions)
    model._detection_loss(columns, positions, states, rng, 1).backward()
    assert model.bias.grad is None
    assert all(p.grad is not None for p in model.body.parameters() if p.requires_grad)


@every_replacement
@given(st.integers(0, 2**31), st.integers(1, 3))
@settings(max_examples=8)
def test_parts_of_a_batch_add_up_to_its_loss(replacements, seed, length_groups):
    """Samples, replacements and both numbers of events are those of the global batch."""
    model = rtd_model(rtd_replacements=replacements).eval()
    columns, lengths, rng = batch([*SESSIONS, [3, 20, 21], [22, 23]], seed)
    whole = torch.stack(model(columns, lengths, rng))
    parts = torch.zeros(2)
    for rank in range(2):
        rows = torch.arange(5)[rank::2]
        own = {name: values[rows] for name, values in columns.items()}
        parts += torch.stack(model(own, lengths[rows], replace(rng, rows=rows), length_groups))
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


def test_bfloat16_keeps_loss_and_gradients_finite():
    model = rtd_model("xlnet")
    with torch.autocast("cpu", torch.bfloat16):
        loss, n_targets = model(*batch())
    (loss / n_targets).backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
