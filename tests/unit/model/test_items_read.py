"""The items that a training step reads: no other row of a table has a gradient."""

import pytest
import torch

from dayahead.model.losses import catalogue_loss, items_read
from support.tiny_settings import columns_of, padded, step_random, tiny_model

SESSIONS = [[2, 3, 4, 5, 6], [7, 8, 9], [30, 3]]
SETTINGS = {
    "clm": {},
    "untied": {"tie_weights": False},
    "noise": {"swap_noise": 0.5},
    "mlm": {"architecture": "xlnet", "task": "mlm"},
    "rtd": {"architecture": "xlnet", "task": "rtd"},
    "bpr": {"loss": {"name": "bpr_max", "negatives": 5}},
    "of the batch alone": {"loss": {"name": "gbce", "negatives": 0}},
}


def model_of(**settings):
    loss = {"name": "sampled_softmax", "negatives": 5} | settings.pop("loss", {})
    model = tiny_model(n_items=40, loss=loss, **settings)
    model.sampler.set_counts(torch.ones(40, dtype=torch.int64))
    return model.train()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_other_row_has_a_gradient(settings):
    model = model_of(**settings)
    model.set_sparse_gradients(are_sparse=True)
    items, lengths = padded(SESSIONS)
    tables = [model.inputs.items.weight]
    if not model.config.tie_weights:
        tables.append(model.output_items.weight)
    assert model.reads_few_items
    for seed in range(10):
        rng = step_random(items, seed)
        loss, _ = model(columns_of(items), lengths, rng)
        loss.backward()
        read = items_read(rng, model.negatives(rng), 40)
        assert read.tolist() == sorted(set(read.tolist()))
        for table in tables:
            assert table.grad.is_sparse
            assert set(table.grad.coalesce().indices()[0].tolist()) <= set(read.tolist())
            table.grad = None


def test_without_a_target_no_row_has_a_gradient():
    """So it is for each worth of events that no target of a batch has."""
    model = model_of()
    model.set_sparse_gradients(are_sparse=True)
    states = torch.zeros(0, model.inputs.items.weight.shape[1], requires_grad=True)
    none = torch.zeros(0, dtype=torch.int64)
    rng = step_random(padded(SESSIONS)[0])
    loss = catalogue_loss(model.loss, states, model.output_layer, none, model.negatives(rng))
    loss.backward()
    assert loss == 0
    assert model.inputs.items.weight.grad.is_sparse
    assert model.inputs.items.weight.grad.coalesce().indices().numel() == 0


def test_indices_without_a_row_read_that_of_item_0():
    items, _ = padded([[60, 7], [1, 9, 9]])  # 1 is unknown, and 60 beyond the catalogue
    model = model_of(loss={"negatives": 0})
    rng = step_random(items)
    assert items_read(rng, model.negatives(rng), 40).tolist() == [0, 5, 7]


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": {"name": "softmax"}},
        {"loss": {"label_smoothing": 0.1}},
        {
            "architecture": "xlnet",
            "task": "rtd",
            "task_settings": {"rtd_replacements": "catalogue"},
        },
    ],
    ids=["softmax", "smoothed", "samples of the catalogue"],
)
def test_some_steps_read_every_row(settings):
    loss = {"name": "sampled_softmax", "negatives": 5} | settings.pop("loss", {})
    assert not tiny_model(loss=loss, **settings).reads_few_items
