"""The next-item model: what learns, what grows, and that the loss is what it says."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from dayahead.model.next_item import NextItemModel
from support.tiny_settings import (
    columns_of,
    draws_for,
    every_body,
    loss_config,
    model_config,
    padded,
    task_config,
    tiny_model,
)

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]


def batch(sessions=SESSIONS, seed=0):
    items, lengths = padded(sessions)
    return columns_of(items), lengths, draws_for(items, seed)


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@every_body
@pytest.mark.parametrize(
    "changes", [{}, {"tie_weights": False}, {"item_embedding_dim": 8}], ids=str
)
def test_the_gradient_reaches_everything_that_wants_one(architecture, task, changes):
    model = tiny_model(architecture, task, **changes)
    loss, _ = model(*batch(), 1)
    loss.backward()
    missed = [name for name, grad in gradients(model).items() if grad is None]
    assert missed == []
    # Zero only where nothing was looked up; a key's bias shifts a softmax's scores all alike.
    zero = {name for name, grad in gradients(model).items() if not grad.any()}
    assert {name for name in zero if "key.bias" not in name and "unknown" not in name} == set()


@every_body
def test_the_mask_learns_only_where_something_is_masked(architecture, task):
    model = tiny_model(architecture, task)
    assert model.mask.requires_grad == (task in {"mlm", "rtd"})


@every_body
def test_empty_rows_only_reach_everything_with_zeros(architecture, task):
    """A process whose share of a batch is empty still owes DDP every gradient."""
    model = tiny_model(architecture, task)
    columns, _, draws = batch([[0, 0, 0], [0, 0, 0]])
    loss, n_targets = model(columns, torch.tensor([0, 0]), draws, 1)
    loss.backward()
    assert (loss.item(), n_targets.item()) == (0, 0)
    assert all(grad is not None and not grad.any() for grad in gradients(model).values())


@every_body
def test_an_empty_row_beside_others_adds_nothing(architecture, task):
    model = tiny_model(architecture, task)
    columns, lengths, draws = batch()
    alone = model(columns, lengths, draws, 1)
    columns, _, more_draws = batch([*SESSIONS, []])
    beside = model(columns, torch.tensor([*lengths, 0]), more_draws, 1)
    torch.testing.assert_close(alone, beside)


@every_body
@pytest.mark.parametrize("length_groups", [2, 3, 4, 9])
def test_parts_of_like_length_give_the_loss_and_gradients_of_the_whole(
    architecture, task, length_groups
):
    """Whatever the order of lengths, and with a part of empty rows only."""
    sessions = [[12, 13], [20, 21, 22], [8, 9, 10, 11], [2, 3, 4, 5, 6, 7], [], []]
    model = tiny_model(architecture, task)
    found = []
    for n_parts in (1, length_groups):
        loss, n_targets = model(*batch(sessions), n_parts)
        model.zero_grad()
        loss.backward()
        found.append((n_targets, loss.detach(), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@every_body
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy_of_the_targets_scores(architecture, task, smoothing):
    """Score each target with the dense softmax from the outside, as `scorer` does."""
    model = tiny_model(architecture, task, smoothing=smoothing).eval()
    model.detector = None  # what rtd adds is measured beside its own definition
    columns, lengths, draws = batch()
    question, answers = model.task.training_question(columns["item_id"], lengths, draws)
    loss, n_targets = model(columns, lengths, draws, 1)
    scores = model._answers(columns, question) @ model.scoring_rows.T + model.bias
    wanted = cross_entropy(scores, answers - 2, label_smoothing=smoothing, reduction="sum")
    assert n_targets.item() == len(answers)
    torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "xlnet"])
def test_a_causal_loss_is_made_of_the_scores_that_measuring_sees(architecture):
    """Position t in training scores as the session cut after t does in evaluation."""
    model = tiny_model(architecture, "clm").eval()
    columns, lengths, draws = batch()
    scores = model.scorer(torch.arange(2, 32))
    total = 0.0
    for row, session in enumerate(SESSIONS):
        for n in range(1, len(session)):
            one = {name: values[row : row + 1] for name, values in columns.items()}
            target = torch.tensor([session[n] - 2])
            total += cross_entropy(scores(one, torch.tensor([n])), target).item()
    loss, n_targets = model(columns, lengths, draws, 1)
    assert n_targets.item() == sum(map(len, SESSIONS)) - len(SESSIONS)
    assert loss.item() == pytest.approx(total, rel=1e-5)


@every_body
def test_growing_leaves_the_scores_of_old_items_alone(architecture, task):
    model = tiny_model(architecture, task, n_items=20)
    columns, n_known = columns_of(torch.tensor([[3, 4, 5, 0]])), torch.tensor([3])
    before = model.scorer(torch.arange(2, 22))(columns, n_known)
    model.grow({"item_id": 30, "category": 4})
    after = model.scorer(torch.arange(2, 22))(columns, n_known)
    assert model.n_items == 30
    torch.testing.assert_close(before, after)


@every_body
@pytest.mark.parametrize("tie_weights", [True, False])
def test_a_model_grown_by_steps_is_the_one_grown_at_once(architecture, task, tie_weights):
    model = tiny_model(architecture, task, n_items=10, tie_weights=tie_weights)
    model.grow({"item_id": 30, "category": 3})
    wanted = tiny_model(architecture, task, n_items=30, tie_weights=tie_weights).state_dict()
    found = model.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    first = tiny_model(seed=1).state_dict()
    torch.manual_seed(99)
    again, other = tiny_model(seed=1).state_dict(), tiny_model(seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["inputs.items.weight"], other["inputs.items.weight"])
    assert not torch.equal(first["inputs.project.weight"], other["inputs.project.weight"])


def test_building_leaves_the_global_random_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    tiny_model()
    assert torch.equal(before, torch.get_rng_state())


def test_tied_weights_are_one_tensor_and_untied_are_two():
    tied, untied = tiny_model(tie_weights=True), tiny_model(tie_weights=False)
    assert tied.scoring_rows is tied.inputs.items.weight
    assert untied.scoring_rows is untied.output_items.weight
    assert "output_items.weight" not in tied.state_dict()


def test_the_age_of_an_item_not_held_counts_as_unknown():
    """A window file knows when an item was born that the model, like `recommend`, does not."""
    model = NextItemModel(
        model_config(),
        task_config(),
        loss_config(),
        categoricals={"type": 3},  # a name that no module may have
        numbers={"age": "item_age"},
        max_length=8,
        seed=1,
    )
    model.grow({"item_id": 5, "type": 3})
    score = model.scorer(torch.arange(2, 7))
    items, types = torch.tensor([[3, 30, 0]]), torch.tensor([[2, 3, 0]])

    def scored(held: float, new: float) -> torch.Tensor:
        ages = torch.tensor([[held, new, 0.0]])
        return score({"item_id": items, "type": types, "age": ages}, torch.tensor([2]))

    assert torch.equal(scored(0.1, 0.0), scored(0.1, 0.7))
    assert not torch.equal(scored(0.1, 0.0), scored(0.4, 0.0))
