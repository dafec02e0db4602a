"""rtd: what replaces the masked items, how the two losses add up, and who learns from which."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from dayahead.core.errors import ConfigError
from dayahead.model.next_item import NextItemModel
from dayahead.model.output import OutputLayer
from dayahead.model.rtd import guesses
from support.tiny_settings import (
    columns_of,
    draws_for,
    loss_config,
    model_config,
    padded,
    task_config,
)

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]
N_ITEMS = 40

every_generator = pytest.mark.parametrize("tied", [True, False], ids=["tied", "separate"])
every_set = pytest.mark.parametrize("replacements", ["batch", "catalogue"])


def rtd_model(
    architecture: str = "bert", *, n_head: int = 2, dropout: float = 0.0, **task: object
) -> NextItemModel:
    """A model that reads `category` and `price` beside the item."""
    model = NextItemModel(
        model_config(architecture=architecture, n_head=n_head, dropout=dropout),
        task_config(name="rtd", **task),
        loss_config(),
        categoricals={"category": 3},
        numbers={"price": "log_number"},
        max_length=8,
        seed=1,
    )
    model.grow({"item_id": N_ITEMS, "category": 3})
    return model


def batch(sessions=SESSIONS, seed=0):
    items, lengths = padded(sessions)
    return columns_of(items), lengths, draws_for(items, seed)


@contextmanager
def what_is_read(model: NextItemModel) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The columns of each pass, in their order: the generator's, then the detector's."""
    passes: list[dict[str, torch.Tensor]] = []
    hook = model.inputs.register_forward_pre_hook(lambda _, given: passes.append(given[0]))
    yield passes
    hook.remove()


def masked_in(model, columns, lengths, draws):
    question, _ = model.task.training_question(columns["item_id"], lengths, draws)
    return question.is_masked


def test_a_guess_is_drawn_by_the_softmax_of_its_scores():
    table = torch.tensor([[0.0], [1.0], [2.0], [-1.0]])
    bias = torch.tensor([0.5, 0.0, -0.5, 0.0])
    hidden = torch.ones(40_000, 1)
    places = torch.rand(len(hidden), generator=torch.Generator().manual_seed(0))
    items, _ = padded([[2, 3]])
    found = guesses(
        hidden, OutputLayer.whole(table, bias), places, draws_for(items), logits_budget_mib=64
    )
    shares = torch.bincount(found, minlength=4) / len(found)
    torch.testing.assert_close(shares, (table[:, 0] + bias).softmax(0), atol=0.01, rtol=0)


def test_two_guesses_of_one_strip_of_noise_meet_by_chance_alone():
    n_items = 10
    places = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    hidden, table, bias = torch.ones(10_000, 1), torch.zeros(n_items, 1), torch.zeros(n_items)
    items, _ = padded([[2, 3]])
    found = guesses(
        hidden, OutputLayer.whole(table, bias), places, draws_for(items), logits_budget_mib=64
    )
    meets = found[:5_000] == found[5_000:]
    assert meets.float().mean().item() == pytest.approx(1 / n_items, abs=0.01)


def test_guesses_in_chunks_are_those_of_one_piece():
    noise = torch.Generator().manual_seed(0)
    hidden, table = torch.randn(50, 8, generator=noise), torch.randn(30_000, 8, generator=noise)
    catalogue = OutputLayer.whole(table, torch.zeros(30_000))
    places = torch.rand(50, generator=noise)
    items, _ = padded([[2, 3]])
    small, large = (
        guesses(hidden, catalogue, places, draws_for(items), logits_budget_mib=n) for n in (1, 64)
    )
    assert torch.equal(small, large)


@every_set
@given(st.integers(0, 2**31))
@settings(max_examples=20)
def test_replacements_come_from_the_masked_items_or_all(replacements, seed):
    model = rtd_model(rtd_replacements=replacements)
    columns, lengths, draws = batch(seed=seed)
    with what_is_read(model) as passes:
        model(columns, lengths, draws)
    first, second = passes
    is_masked = masked_in(model, columns, lengths, draws)
    assert torch.equal(first["item_id"], columns["item_id"])
    assert torch.equal(second["item_id"][~is_masked], columns["item_id"][~is_masked])
    wanted = columns["item_id"][is_masked] if replacements == "batch" else range(2, 2 + N_ITEMS)
    assert set(second["item_id"][is_masked].tolist()) <= set(torch.as_tensor(wanted).tolist())


def test_the_catalogue_replaces_with_items_of_no_session_too():
    model = rtd_model(rtd_replacements="catalogue")
    found = set()
    for seed in range(20):
        columns, lengths, draws = batch(seed=seed)
        with what_is_read(model) as passes:
            model(columns, lengths, draws)
        found |= set(passes[1]["item_id"].flatten().tolist())
    assert len(found - set(sum(SESSIONS, [0]))) > 5


def test_only_the_item_is_exchanged():
    model = rtd_model()
    columns, lengths, draws = batch()
    with what_is_read(model) as passes:
        model(columns, lengths, draws)
    assert not torch.equal(passes[1]["item_id"], columns["item_id"])
    assert torch.equal(passes[1]["category"], columns["category"])
    assert torch.equal(passes[1]["price"], columns["price"])


@every_generator
@pytest.mark.parametrize("n_past", [0, 2])
def test_the_loss_is_both_means_weighed(tied, n_past):
    """The detector's over the sessions' own events, those of the past left out."""
    weights = {"rtd_generator_weight": 2.0, "rtd_discriminator_weight": 3.0}
    model = rtd_model(rtd_tied_generator=tied, **weights).eval()
    columns, lengths, draws = batch()
    draws = replace(draws, past=torch.tensor([n_past, 0, 0]))
    with what_is_read(model) as passes:
        loss, n_targets = model(columns, lengths, draws)
    changed = passes[1]
    detector, model.detector = model.detector, None
    masked_alone, n_masked = model(columns, lengths, draws)
    assert n_targets == n_masked
    steps = torch.arange(6)
    is_own = (steps < lengths[:, None]) & (steps >= draws.past[:, None])
    body = detector.body or model.body
    scores = detector.head(
        body(model.inputs(changed, model.inputs.items(changed["item_id"])), lengths)
    )[..., 0][is_own]
    is_replaced = (changed["item_id"] != columns["item_id"])[is_own]
    assert is_replaced.any()
    found = binary_cross_entropy_with_logits(scores, is_replaced.float())
    torch.testing.assert_close(loss / n_targets, 2 * masked_alone / n_masked + 3 * found)


def test_a_guess_that_meets_the_original_counts_as_original():
    """Sessions of one item: among the masked there is nothing else to draw."""
    model = rtd_model().eval()
    columns, lengths, draws = batch([[5, 5, 5, 5], [5, 5, 5]])
    loss, n_targets = model(columns, lengths, draws)
    detector, model.detector = model.detector, None
    masked_alone, _ = model(columns, lengths, draws)
    scores = detector.head(
        model.body(model.inputs(columns, model.inputs.items(columns["item_id"])), lengths)
    )[..., 0]
    is_event = torch.arange(4) < lengths[:, None]
    nothing = binary_cross_entropy_with_logits(scores[is_event], torch.zeros(7))
    torch.testing.assert_close(loss / n_targets, masked_alone / n_targets + nothing)


@every_generator
def test_guessing_has_no_gradient(tied):
    """The detector's part alone teaches no generator of its own, and no output bias."""
    model = rtd_model(rtd_tied_generator=tied)
    columns, lengths, draws = batch()
    question, _ = model.task.training_question(columns["item_id"], lengths, draws)
    hidden = model._answers(columns, question)
    model._detection_loss(columns, question, hidden, draws, 1).backward()
    assert model.bias.grad is None
    assert all((p.grad is None) != tied for p in model.body.parameters() if p.requires_grad)


@every_generator
@every_set
@pytest.mark.parametrize("architecture", ["bert", "xlnet", "electra"])
def test_both_losses_reach_every_parameter(architecture, tied, replacements):
    model = rtd_model(architecture, rtd_tied_generator=tied, rtd_replacements=replacements)
    loss, _ = model(*batch())
    loss.backward()
    wanting = {name for name, p in model.named_parameters() if p.requires_grad}
    zero = {n for n, p in model.named_parameters() if n in wanting and not p.grad.any()}
    assert {name for name in zero if "key.bias" not in name and "unknown" not in name} == set()


@every_generator
def test_a_share_of_empty_rows_reaches_everything_with_zeros(tied):
    model = rtd_model(rtd_tied_generator=tied)
    columns, _, draws = batch([*SESSIONS, []])
    rows = torch.tensor([3])
    share = {name: values[rows] for name, values in columns.items()}
    loss, n_targets = model(share, torch.tensor([0]), replace(draws, rows=rows))
    loss.backward()
    assert (loss.item(), n_targets.item()) == (0, 0)
    wanting = [p for p in model.parameters() if p.requires_grad]
    assert all(p.grad is not None and not p.grad.any() for p in wanting)


@every_generator
@every_set
@given(st.integers(0, 2**31), st.integers(1, 3))
@settings(max_examples=8)
def test_shares_of_a_batch_add_up_to_the_whole(tied, replacements, seed, length_groups):
    """However it is dealt out: guesses, candidates and both numbers of events are the batch's."""
    model = rtd_model(rtd_tied_generator=tied, rtd_replacements=replacements).eval()
    columns, lengths, draws = batch([*SESSIONS, [3, 20, 21], [22, 23]], seed)
    whole = torch.stack(model(columns, lengths, draws))
    parts = torch.zeros(2)
    for rank in range(2):
        rows = torch.arange(5)[rank::2]
        share = {name: values[rows] for name, values in columns.items()}
        own = replace(draws, rows=rows)
        parts += torch.stack(model(share, lengths[rows], own, length_groups))
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("share", "n_head", "width"), [(0.5, 2, 8), (0.3, 4, 4), (0.2, 1, 4)])
def test_a_separate_generator_is_a_share_as_wide_in_whole_heads(share, n_head, width):
    model = rtd_model("xlnet", n_head=n_head, rtd_tied_generator=False, rtd_generator_share=share)
    assert model.body.project_in.out_features == width
    assert model.detector.body.network.transformer.config.d_model == 16
    assert model.body.body.network.transformer.config.d_model == width


def test_a_generator_too_narrow_for_its_architecture_is_told_of_its_share():
    """Of two numbers a layer norm leaves two signs."""
    with pytest.raises(ConfigError, match=r"task\.rtd_generator_share.*0\.01.*2 wide"):
        rtd_model("xlnet", n_head=1, rtd_tied_generator=False, rtd_generator_share=0.01)


@every_generator
def test_the_next_item_is_the_generators_to_score(tied):
    model = rtd_model(rtd_tied_generator=tied)
    known = (columns_of(torch.tensor([[3, 4, 5, 0]])), torch.tensor([3]))
    score = model.scorer(torch.arange(2, 2 + N_ITEMS))
    before = score(*known)
    with torch.no_grad():
        for parameter in model.detector.parameters():
            parameter.add_(1.0)
    assert torch.equal(score(*known), before)


@pytest.mark.parametrize("architecture", ["gpt2", "gru"])
def test_a_body_that_looks_back_only_is_refused(architecture):
    with pytest.raises(ConfigError, match=r"model\.architecture"):
        rtd_model(architecture)


@every_generator
def test_bfloat16_keeps_loss_and_gradients_finite(tied):
    model = rtd_model("xlnet", rtd_tied_generator=tied)
    with torch.autocast("cpu", torch.bfloat16):
        loss, n_targets = model(*batch())
    (loss / n_targets).backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@every_generator
def test_its_state_goes_round(tied):
    model, other = (rtd_model(rtd_tied_generator=tied) for _ in range(2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(*batch())[0], other.eval()(*batch())[0])
