"""The next-item model: gradients, growth, equal parts of a batch, and the loss as defined."""

from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import cross_entropy

from dayahead.model.next_item import NextItemModel
from support.tiny_settings import (
    BACKBONES,
    columns_of,
    every_backbone,
    loss_config,
    model_config,
    padded,
    step_random,
    task_config,
    tiny_model,
)

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]
PAST_SESSIONS = [*SESSIONS, [14, 15, 16]]
PAST = torch.tensor([2, 0, 0, 1])
SETTINGS = [
    {"merge": "elementwise"},
    {"merge": "elementwise", "item_embedding_dim": 8, "soft_one_hot": 3, "feature_norm": True},
    {"number_dim": 4},
    {"number_dim": 4, "soft_one_hot": 3, "feature_norm": True},
    {"feature_norm": True, "embedding_multiplier": 5.0},
    {"activation": "tanh", "item_embedding_dim": 8},
    {"activation": "relu", "tie_weights": False},
    {"freeze_items": True, "item_embedding_dim": 8},
    {"swap_noise": 0.4, "unknown_rate": 0.4},
    {"past_length": 3},
    {"past_length": 3, "merge": "elementwise", "activation": "gelu", "swap_noise": 0.4},
]
every_setting = pytest.mark.parametrize("changes", SETTINGS, ids=str)
TASKS = [("gpt2", "clm"), ("bert", "mlm")]
every_task = pytest.mark.parametrize(("architecture", "task"), TASKS)


def batch(sessions=SESSIONS, seed=0):
    items, lengths = padded(sessions)
    return columns_of(items), lengths, step_random(items, seed)


def batch_with_past(rows=slice(None)):
    """Rows of a batch of which two have events of the user's past."""
    items, lengths = padded(PAST_SESSIONS)
    is_past = (torch.arange(items.shape[1]) < PAST[:, None]).long()
    columns = columns_of(items) | {"_is_past": is_past}
    rng = step_random(items, past=PAST, rows=torch.arange(len(items))[rows])
    return {name: values[rows] for name, values in columns.items()}, lengths[rows], rng


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def assert_reaches_everything(model, loss):
    """Zero only where nothing was looked up; a key's bias shifts a softmax's scores all alike."""
    loss.backward()
    found = gradients(model)
    assert all(grad is not None and grad.isfinite().all() for grad in found.values())
    zero = {name for name, grad in found.items() if not grad.any()}
    assert {name for name in zero if "key.bias" not in name and "unknown" not in name} == set()


@every_backbone
@pytest.mark.parametrize(
    "changes", [{}, {"tie_weights": False}, {"item_embedding_dim": 8}], ids=str
)
def test_the_gradient_reaches_all_that_is_not_frozen(architecture, task, changes):
    model = tiny_model(architecture, task, **changes)
    assert_reaches_everything(model, model(*batch(), 1)[0])


@every_setting
@every_task
def test_the_gradient_reaches_all_that_is_not_frozen_with_every_setting(
    architecture, task, changes
):
    model = tiny_model(architecture, task, **changes).train()
    assert_reaches_everything(model, model(*batch_with_past())[0])


@every_backbone
def test_the_mask_learns_only_where_something_is_masked(architecture, task):
    model = tiny_model(architecture, task)
    assert model.mask.requires_grad == (task in {"mlm", "rtd"})


def assert_zero_gradients(model, columns, rng):
    """A process with empty rows alone still owes DDP every gradient."""
    nothing = {name: torch.zeros_like(values) for name, values in columns.items()}
    loss, n_targets = model(nothing, torch.zeros(len(columns["item_id"]), dtype=int), rng)
    loss.backward()
    assert (loss.item(), n_targets.item()) == (0, 0)
    assert all(grad is not None and not grad.any() for grad in gradients(model).values())


@every_backbone
def test_empty_rows_alone_give_zero_gradients(architecture, task):
    columns, _, rng = batch()
    assert_zero_gradients(tiny_model(architecture, task), columns, rng)


@every_setting
@every_task
def test_empty_rows_alone_give_zero_gradients_with_every_setting(architecture, task, changes):
    columns, _, rng = batch_with_past(slice(0, 2))
    assert_zero_gradients(tiny_model(architecture, task, **changes).train(), columns, rng)


@every_backbone
def test_an_empty_row_beside_others_adds_nothing(architecture, task):
    model = tiny_model(architecture, task)
    columns, lengths, rng = batch()
    alone = model(columns, lengths, rng, 1)
    columns, _, more_rng = batch([*SESSIONS, []])
    beside = model(columns, torch.tensor([*lengths, 0]), more_rng, 1)
    torch.testing.assert_close(alone, beside)


@pytest.mark.parametrize("changes", [{}, {"past_length": 3, "merge": "elementwise"}], ids=str)
@pytest.mark.parametrize(
    ("architecture", "task"), [("gpt2", "clm"), ("xlnet", "mlm"), ("bert", "mlm"), ("bert", "rtd")]
)
def test_packed_sessions_give_the_loss_and_gradients_of_padded_ones(architecture, task, changes):
    model = tiny_model(architecture, task, **changes).train()
    found, n_packed = [], []
    for packs in (True, False):
        model.body.network.packs = packs
        with patch.object(model.body, "forward_packed", wraps=model.body.forward_packed) as calls:
            loss, n_targets = model(*batch_with_past())
        n_packed.append(calls.call_count)
        model.zero_grad()
        loss.backward()
        found.append([loss, n_targets, *gradients(model).values()])
    assert n_packed == [2 if task == "rtd" else 1, 0]
    assert len(found[0]) > 20
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@every_backbone
@pytest.mark.parametrize("length_groups", [2, 3, 9])
def test_length_groups_give_the_loss_and_gradients_of_the_whole(architecture, task, length_groups):
    """Whatever the order of lengths, and with a group of empty rows only."""
    sessions = [[], [12, 13], [20, 21, 22], [2, 3, 4, 5, 6, 7], [8, 9, 10, 11], []]
    model = tiny_model(architecture, task).eval()  # in training some pack sessions instead
    found = []
    for n_groups in (1, length_groups):
        loss, n_targets = model(*batch(sessions), n_groups)
        model.zero_grad()
        loss.backward()
        found.append((n_targets, loss.detach(), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "task", "changes"),
    [
        *((*pair, changes) for pair in TASKS for changes in SETTINGS),
        *((*pair, {"past_length": 3}) for pair in BACKBONES if pair not in TASKS),
    ],
    ids=str,
)
def test_two_processes_make_the_step_of_one(architecture, task, changes):
    model = tiny_model(architecture, task, **changes).train()
    found = []
    for shares in ([slice(None)], [slice(0, None, 2), slice(1, None, 2)]):
        model.zero_grad()
        sums = [model(*batch_with_past(rows)) for rows in shares]
        for loss, _ in sums:
            loss.backward()
        total = torch.stack([loss.detach() for loss, _ in sums]).sum()
        found.append((total, sum(n for _, n in sums), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@every_backbone
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy_of_the_targets_scores(architecture, task, smoothing):
    """Score each target with the dense softmax from the outside, as `scorer` does."""
    model = tiny_model(architecture, task, loss={"label_smoothing": smoothing}).eval()
    model.detector = None  # test_rtd.py tests what rtd adds
    columns, lengths, rng = batch()
    positions, labels = model.task.training_positions(columns["item_id"], lengths, rng)
    loss, n_targets = model(columns, lengths, rng, 1)
    scores = model._output_states(columns, positions) @ model.output_layer.table.T + model.bias
    wanted = cross_entropy(scores, labels - 2, label_smoothing=smoothing, reduction="sum")
    assert n_targets.item() == len(labels)
    torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "xlnet"])
def test_a_causal_loss_is_made_of_the_scores_of_evaluation(architecture):
    """Position t in training scores as the session cut after t does in evaluation."""
    model = tiny_model(architecture, "clm").eval()
    columns, lengths, rng = batch()
    scores = model.scorer(torch.arange(2, 32))
    total = 0.0
    for row, session in enumerate(SESSIONS):
        for n in range(1, len(session)):
            one = {name: values[row : row + 1] for name, values in columns.items()}
            target = torch.tensor([session[n] - 2])
            total += cross_entropy(scores(one, torch.tensor([n])), target).item()
    loss, n_targets = model(columns, lengths, rng, 1)
    assert n_targets.item() == sum(map(len, SESSIONS)) - len(SESSIONS)
    assert loss.item() == pytest.approx(total, rel=1e-5)


@every_backbone
def test_growing_does_not_change_the_scores_of_old_items(architecture, task):
    model = tiny_model(architecture, task, n_items=20)
    torch.nn.init.normal_(model.bias)
    columns, n_known = columns_of(torch.tensor([[3, 4, 5, 0]])), torch.tensor([3])
    before = model.scorer(torch.arange(2, 22))(columns, n_known)
    model.grow({"item_id": 30, "category": 4})
    after = model.scorer(torch.arange(2, 22))(columns, n_known)
    assert model.n_items == 30
    torch.testing.assert_close(before, after)


@every_backbone
@pytest.mark.parametrize("tie_weights", [True, False])
def test_a_model_grown_by_steps_is_the_one_grown_at_once(architecture, task, tie_weights):
    model = tiny_model(architecture, task, n_items=10, tie_weights=tie_weights)
    model.grow({"item_id": 30, "category": 3})
    wanted = tiny_model(architecture, task, n_items=30, tie_weights=tie_weights).state_dict()
    found = model.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_weights_depend_on_the_seed_alone_and_leave_the_global_random_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = tiny_model(seed=1).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    again, other = tiny_model(seed=1).state_dict(), tiny_model(seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["inputs.items.weight"], other["inputs.items.weight"])
    assert not torch.equal(first["inputs.project.weight"], other["inputs.project.weight"])


def test_tied_weights_are_one_tensor_and_untied_are_two():
    tied, untied = tiny_model(tie_weights=True), tiny_model(tie_weights=False)
    assert tied.output_layer.table is tied.inputs.items.weight
    assert untied.output_layer.table is untied.output_items.weight
    assert "output_items.weight" not in tied.state_dict()


@every_setting
def test_the_state_holds_every_tensor(changes):
    first, second = (tiny_model(seed=seed, **changes) for seed in (1, 2))
    second.load_state_dict(first.state_dict())
    columns, lengths, _ = batch_with_past()
    scores = [model.scorer(torch.arange(2, 32))(columns, lengths - 1) for model in (first, second)]
    assert torch.equal(*scores)


@every_setting
def test_bfloat16_is_near_float32(changes):
    model = tiny_model(**changes).train()
    exact, _ = model(*batch_with_past())
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = model(*batch_with_past())
    rounded.backward()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.05)
    assert all(grad is not None and grad.isfinite().all() for grad in gradients(model).values())


N_SESSIONS, LENGTH, N_STEPS = 20, 5, 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "task", "changes"),
    [
        ("gpt2", "clm", {}),
        ("bert", "mlm", {}),
        ("xlnet", "plm", {}),
        ("xlnet", "rtd", {}),
        ("electra", "rtd", {"rtd_replacements": "catalogue"}),
        ("bert", "rtd", {}),
    ],
)
def test_every_task_overfits_twenty_sessions(architecture, task, changes):
    """The first item identifies the session; the last is a target and nowhere an input."""
    model = NextItemModel(
        model_config(architecture=architecture, d_model=32, n_layer=1, init_std=0.05),
        task_config(name=task, **changes),
        loss_config(),
        categoricals={},
        numbers={},
        max_length=LENGTH,
        seed=1,
    )
    noise = torch.Generator().manual_seed(0)
    n_items = 40
    model.grow({"item_id": n_items})
    items = torch.randint(22, 42, (N_SESSIONS, LENGTH), generator=noise)
    items[:, 0] = torch.arange(2, 22)
    lengths = torch.full((N_SESSIONS,), LENGTH)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, N_STEPS)
    for step in range(N_STEPS):
        loss, n_targets = model({"item_id": items}, lengths, step_random(items, step))
        optimizer.zero_grad()
        (loss / n_targets).backward()
        optimizer.step()
        schedule.step()
    scores = model.scorer(torch.arange(2, 2 + n_items))({"item_id": items}, lengths - 1)
    assert (scores.argmax(1) + 2 == items[:, -1]).all()


def test_scores_that_are_overwritten_are_the_same():
    model = tiny_model("gpt2", "clm", n_items=30)
    fresh, reused = (model.scorer(torch.arange(2, 32), overwrites=each) for each in (False, True))
    for n_rows in (3, 4, 2):
        items, n_known = torch.randint(2, 32, (n_rows, 5)), torch.full((n_rows,), 4)
        found = reused(columns_of(items), n_known)
        assert torch.equal(found, fresh(columns_of(items), n_known))
    assert reused(columns_of(items), n_known).data_ptr() == found.data_ptr()
