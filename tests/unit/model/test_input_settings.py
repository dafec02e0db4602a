"""Every setting of the inputs: what learns, what is stored, what is shared, what is refused."""

import pytest
import torch

from dayahead.core.errors import ConfigError
from dayahead.model.building import build_model
from dayahead.model.next_item import NextItemModel
from support.tiny_settings import (
    columns_of,
    draws_for,
    loss_config,
    model_config,
    padded,
    task_config,
    tiny_model,
)
from support.window_folders import FEATURES, tiny_statistics

SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16]]
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
    {"swap_noise": 0.4},
    {"past_length": 3},
    {"past_length": 3, "merge": "elementwise", "activation": "gelu", "swap_noise": 0.4},
]
TASKS = [("gpt2", "clm"), ("bert", "mlm")]
every_setting = pytest.mark.parametrize("changes", SETTINGS, ids=str)
every_task = pytest.mark.parametrize(("architecture", "task"), TASKS)


def batch(rows=slice(None)):
    """Sessions, some of them with a past."""
    items, lengths = padded(SESSIONS)
    is_past = (torch.arange(items.shape[1]) < PAST[:, None]).long()
    columns = columns_of(items) | {"_is_past": is_past}
    places = torch.arange(len(items))[rows]
    draws = draws_for(items, past=PAST).part(places, items.shape[1])
    return {name: values[rows] for name, values in columns.items()}, lengths[rows], draws


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@every_setting
@every_task
def test_the_gradient_reaches_everything_that_wants_one(architecture, task, changes):
    model = tiny_model(architecture, task, **changes).train()
    loss, _ = model(*batch())
    loss.backward()
    assert torch.isfinite(loss)
    found = gradients(model)
    assert all(grad is not None and torch.isfinite(grad).all() for grad in found.values())
    # A key's bias shifts a softmax's scores all alike; a relu may be shut.
    zero = {name for name, grad in found.items() if not grad.any()}
    assert {n for n in zero if "key.bias" not in n and "unknown" not in n} == set()


@every_setting
@every_task
def test_empty_rows_only_reach_everything(architecture, task, changes):
    model = tiny_model(architecture, task, **changes).train()
    columns, lengths, draws = batch(slice(0, 2))
    nothing = {name: torch.zeros_like(values) for name, values in columns.items()}
    loss, n_targets = model(nothing, torch.zeros_like(lengths), draws)
    loss.backward()
    assert (loss.item(), n_targets.item()) == (0, 0)
    assert all(grad is not None and not grad.any() for grad in gradients(model).values())


@every_setting
@every_task
def test_two_processes_make_the_step_of_one(architecture, task, changes):
    model = tiny_model(architecture, task, **changes).train()
    found = []
    for shares in ([slice(None)], [slice(0, None, 2), slice(1, None, 2)]):
        model.zero_grad()
        sums = [model(*batch(rows)) for rows in shares]
        for loss, _ in sums:
            loss.backward()
        total = torch.stack([loss.detach() for loss, _ in sums]).sum()
        found.append((total, sum(n for _, n in sums), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@every_setting
def test_every_tensor_is_stored_and_scores_alike(changes):
    first, second = (tiny_model(seed=seed, **changes) for seed in (1, 2))
    second.load_state_dict(first.state_dict())
    columns, lengths, _ = batch()
    scores = [model.scorer(torch.arange(2, 32))(columns, lengths - 1) for model in (first, second)]
    assert torch.equal(*scores)


@every_setting
def test_bfloat16_stays_near_float32(changes):
    model = tiny_model(**changes).train()
    exact, _ = model(*batch())
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = model(*batch())
    rounded.backward()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.05)
    assert all(
        grad is not None and torch.isfinite(grad).all() for grad in gradients(model).values()
    )


def test_frozen_items_do_not_move_and_are_scored_with():
    model = tiny_model(freeze_items=True).train()
    before = model.inputs.items.weight.detach().clone()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        model(*batch())[0].backward()
        optimizer.step()
    assert torch.equal(model.inputs.items.weight, before)
    assert model.scoring_rows is model.inputs.items.weight
    assert model.bias.any()


def built(features, **changes):
    statistics = tiny_statistics(FEATURES, max_length=8)
    config = model_config(features=features, **changes)
    sizes = {"item_id": 5, "category": 3}
    return build_model(config, task_config(), loss_config(), statistics, sizes, 1)


@pytest.mark.parametrize(
    ("features", "changes", "complaint"),
    [
        (
            [],
            {"merge": "elementwise"},
            r"merge: elementwise merges side features.*set model\.merge",
        ),
        (["category"], {"number_dim": 4}, r"no feature of model\.features is one"),
        (["category"], {"merge": "elementwise", "soft_one_hot": 4}, r"set both to 0"),
        (["price"], {"soft_one_hot": 4}, r"soft_one_hot: 4.*set model\.number_dim above 0"),
        (
            ["price"],
            {"merge": "elementwise", "number_dim": 4},
            r"item's size, 16; set model\.number",
        ),
    ],
)
def test_settings_that_contradict_each_other_or_do_nothing_are_refused(
    features, changes, complaint
):
    with pytest.raises(ConfigError, match=complaint):
        built(features, **changes)


@pytest.mark.parametrize(
    ("features", "changes"),
    [
        (["category"], {"merge": "elementwise"}),
        (["price"], {"merge": "elementwise", "number_dim": 16, "soft_one_hot": 3}),
        (["price"], {"number_dim": 4, "soft_one_hot": 3}),
        (["category", "price"], {"number_dim": 4, "feature_norm": True}),
    ],
)
def test_settings_that_fit_are_built(features, changes):
    assert isinstance(built(features, **changes), NextItemModel)


def test_the_body_has_room_for_the_past():
    items = torch.arange(13)[None] % 5 + 2
    for past_length, fits in ((5, True), (0, False)):
        model = built([], past_length=past_length)
        model.grow({"item_id": 5})
        score = model.scorer(torch.arange(2, 7))
        if fits:
            assert torch.isfinite(score({"item_id": items}, torch.tensor([12]))).all()
        else:
            with pytest.raises(IndexError):
                score({"item_id": items}, torch.tensor([12]))
