"""`loss.name: auto`: each fit takes the loss that the size of its catalogue asks for."""

import numpy as np
import pytest
import torch

from dayahead.config import model as config
from support.tiny_settings import (
    columns_of,
    loss_config,
    ranks_of,
    step_random,
    tiny_model,
    train_study,
)
from support.window_folders import day, write_window_folder

SESSIONS = [[[1, 2, 3], [2, 3, 1], [3, 1, 2]], [[1, 2, 4], [4, 5, 6], [5, 6, 1]]]
DAYS = [*SESSIONS, SESSIONS[1], SESSIONS[1]]
"""Three items on the first day, six from the second on."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


@pytest.mark.parametrize(
    ("n_items", "name"), [(0, "softmax"), (20_000, "softmax"), (20_001, "sampled_softmax")]
)
def test_auto_is_the_full_softmax_up_to_twenty_thousand_items(n_items, name):
    assert loss_config(name="auto", logq=0.5).at_size(n_items) == loss_config(name=name, logq=0.5)
    assert loss_config(name="gbce").at_size(n_items).name == "gbce"


@pytest.mark.parametrize(("n_items", "name"), [(30, "softmax"), (31, "sampled_softmax")])
def test_a_model_takes_the_loss_of_its_catalogue(n_items, name, monkeypatch):
    monkeypatch.setattr(config, "AUTO_ITEMS", 30)
    items, losses = torch.tensor([[2, 3, 4], [5, 6, 7]]), []
    for each in ("auto", name):
        model = tiny_model(n_items=n_items, loss={"name": each}).eval()
        if model.sampler is not None:
            model.sampler.set_counts(torch.arange(n_items))
        loss, _ = model(columns_of(items), torch.tensor([3, 3]), step_random(items))
        losses.append(loss.item())
    assert losses[0] == losses[1]


def losses_of(out):
    lines = (out / "results" / "windows.csv").read_text().splitlines()
    column = lines[0].split(",").index("train_loss")
    return [line.split(",")[column] for line in lines[1:]]


@pytest.mark.long
def test_the_loss_of_a_study_changes_where_the_catalogue_outgrows_it(
    windows, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(config, "AUTO_ITEMS", 3)
    caplog.set_level("INFO")
    found = {
        name: train_study(windows, tmp_path / name, {"loss": {"name": name}})
        for name in ("auto", "softmax", "sampled_softmax")
    }
    losses = {name: losses_of(out) for name, out in found.items()}
    assert losses["auto"][0] == losses["softmax"][0] != losses["sampled_softmax"][0]
    assert losses["auto"][1] != losses["softmax"][1]
    assert f"loss.name: auto: sampled_softmax from {day(1)} on, with 6 items" in caplog.messages
    # A longer log, whose first fits are in the cache, ends as if it had been there from the start.
    settings = {"loss": {"name": "auto"}}
    for last in (day(2), None):
        longer = train_study(windows, tmp_path / "longer", settings, last=last)
    assert losses_of(longer) == losses["auto"]
    assert np.array_equal(ranks_of(longer, day(3)), ranks_of(found["auto"], day(3)))


@pytest.mark.long
def test_a_network_beside_memories_takes_it_too(windows, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "AUTO_ITEMS", 2)
    model, outs = {"architecture": "memory", "network": "gpt2"}, []
    for name in ("auto", "sampled_softmax"):
        outs.append(train_study(windows, tmp_path / name, {"loss": {"name": name}, "model": model}))
    assert losses_of(outs[0]) == losses_of(outs[1])
    assert np.array_equal(*(ranks_of(out, day(3)) for out in outs))
