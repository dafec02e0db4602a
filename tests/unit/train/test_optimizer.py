"""AdamW and Adagrad with growing parameters, and learning-rate schedules."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, AdamW
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from dayahead.train.optimizer import (
    build_optimizer,
    rate_factor,
    replace_grown,
)
from support.tiny_settings import columns_of, padded, step_random, tiny_model, training_config

SESSIONS = [[2, 3, 4, 5, 6], [7, 8, 9]]


def step(model, optimizer, seed=0):
    items, lengths = padded(SESSIONS)
    loss, _ = model(columns_of(items), lengths, step_random(items, seed), 2)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def grow(model, optimizer, **sizes):
    before = dict(model.named_parameters())
    model.grow(sizes)
    replace_grown(optimizer, before, model)


every_optimizer = pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"optimizer": "adamw"}, ("exp_avg", "exp_avg_sq")),
        ({"optimizer": "adagrad"}, ("sum",)),
        ({"optimizer": "adagrad", "momentum": 0.5}, ("sum", "velocity")),
    ],
    ids=["adamw", "adagrad", "momentum"],
)
"""Settings of an optimizer, and the names of its state of a parameter's shape."""


def fitted(settings=None, **changes):
    model = tiny_model(n_items=10, **changes)
    optimizer = build_optimizer(model, training_config(**(settings or {})))
    for seed in range(3):
        step(model, optimizer, seed)
    return model, optimizer


def test_steps_of_new_rows_exceed_the_learning_rate_at_first_and_only_so_far():
    """By the formulas of Adam: moments from zero, corrected for the steps of the whole table."""
    table = nn.Embedding(3, 2)
    optimizer = AdamW(table.parameters(), lr=0.01, weight_decay=0.0, fused=True)
    n_before = 2000

    def step():
        before = table.weight.detach().clone()
        table.weight.grad = torch.ones_like(table.weight)
        optimizer.step()
        return (before - table.weight.detach()) / 0.01

    for _ in range(n_before):
        step()
    before = dict(table.named_parameters())
    table.weight = nn.Parameter(torch.zeros(5, 2))
    replace_grown(optimizer, before, table)
    found = []
    for number in range(1, 101):
        first, second = (
            (1 - beta**number) / (1 - beta ** (n_before + number)) for beta in (0.9, 0.999)
        )
        wanted = first / second**0.5
        steps = step()
        assert steps[3:].tolist() == [[pytest.approx(wanted, rel=1e-3)] * 2] * 2
        assert steps[:3].tolist() == [[pytest.approx(1.0, rel=1e-3)] * 2] * 3
        found.append(float(steps[3:].max()))
    assert found[0] == pytest.approx(2.94, abs=0.01)  # 3.16 for an older table
    assert max(found) == pytest.approx(6.11, abs=0.01)  # 6.53


def test_the_state_of_new_rows_is_zero_whatever_was_in_their_memory():
    model, optimizer = fitted()
    state = optimizer.state[model.bias]
    room = torch.full((20,), torch.nan)
    room[:10] = state["exp_avg"]
    state["exp_avg"] = room[:10]
    grow(model, optimizer, item_id=15, category=3)
    grown = optimizer.state[model.bias]["exp_avg"]
    assert grown.data_ptr() == room.data_ptr()
    assert grown[10:].tolist() == [0] * 5


def test_every_parameter_keeps_its_group_after_growth():
    model, optimizer = fitted()
    grow(model, optimizer, item_id=15, category=5)
    found = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    wanted = [p for p in model.parameters() if p.requires_grad]
    assert sorted(found[0]) == sorted(id(p) for p in wanted if p.dim() > 1)
    assert sorted(found[1]) == sorted(id(p) for p in wanted if p.dim() <= 1)
    assert set(optimizer.state) <= set(wanted)


@every_optimizer
@pytest.mark.parametrize("tie_weights", [True, False])
def test_a_grown_model_trains_like_one_whose_state_was_padded_by_hand(settings, keys, tie_weights):
    model, optimizer = fitted(settings, tie_weights=tie_weights)
    twin, twin_optimizer = fitted(settings, tie_weights=tie_weights)
    grow(model, optimizer, item_id=15, category=3)

    twin.grow({"item_id": 15, "category": 3})
    state = twin_optimizer.state_dict()
    for entry in state["state"].values():
        for key in keys:
            if entry[key].shape in ((10, 16), (10,)):
                entry[key] = torch.cat([entry[key], torch.zeros(5, *entry[key].shape[1:])])
    by_hand = build_optimizer(twin, training_config(**settings))
    by_hand.load_state_dict(state)

    for seed in range(3):
        step(model, optimizer, seed)
        step(twin, by_hand, seed)
    wanted = twin.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name


def test_growth_before_the_first_step_creates_no_state():
    model = tiny_model(n_items=10)
    optimizer = build_optimizer(model, training_config())
    grow(model, optimizer, item_id=15, category=3)
    assert not optimizer.state
    step(model, optimizer)
    assert optimizer.state[model.inputs.items.weight]["exp_avg"].shape == (15, 16)


def test_vectors_have_no_weight_decay_and_frozen_weights_no_group():
    model = tiny_model(freeze_items=True)
    matrices, vectors = build_optimizer(model, training_config(weight_decay=0.3)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)
    assert {each.dim() > 1 for each in matrices["params"]} == {True}
    assert any(each is model.bias for each in vectors["params"])
    assert all(each is not model.inputs.items.weight for each in matrices["params"])


@given(
    n_steps=st.integers(1, 50),
    warmup_steps=st.integers(0, 60),
    cosine_cycles=st.floats(0.5, 4),
)
def test_the_schedules_equal_those_of_transformers(n_steps, warmup_steps, cosine_cycles):
    """Run their schedulers step by step beside ours."""
    theirs = {
        "constant": lambda o: get_constant_schedule_with_warmup(o, warmup_steps),
        "linear": lambda o: get_linear_schedule_with_warmup(o, warmup_steps, n_steps),
        "cosine": lambda o: get_cosine_schedule_with_warmup(
            o, warmup_steps, n_steps, num_cycles=cosine_cycles
        ),
    }
    for schedule, build in theirs.items():
        config = training_config(
            schedule=schedule, warmup_steps=warmup_steps, cosine_cycles=cosine_cycles
        )
        optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        scheduler = build(optimizer)
        for index in range(n_steps):
            [rate] = scheduler.get_last_lr()
            assert rate_factor(config, index, n_steps) == pytest.approx(rate, abs=1e-12)
            optimizer.step()
            scheduler.step()
