"""Every architecture and task with the settings of params.yaml, on the embedded data set."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils import get_total_norm

from dayahead.config.params import load_params
from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from dayahead.model.next_item import NextItemModel
from dayahead.outputs.tables import read_windows
from dayahead.preprocess.stage import preprocess
from dayahead.train.stage import train
from dayahead.train.study import Study
from support.backbones import TRAINED, mark_slow
from support.project_copy import ROOT
from support.tiny_settings import step_random

PARAMS = load_params(ROOT / "params.yaml")
N_ITEMS = 1000


def shipped(architecture, task, **changes):
    """The settings of params.yaml for one network without memories."""
    model = replace(PARAMS.model, architecture=architecture, network="none")
    if architecture == "avg":  # tied, it would recommend the last item itself
        model = replace(model, tie_weights=False)
    task = replace(PARAMS.task, name=task)
    return replace(PARAMS, model=replace(model, **changes), task=task)


def first_gradient_norm(params, items, lengths):
    model = NextItemModel(
        replace(params.model, unknown_rate=0.0),
        params.task,
        params.loss,
        categoricals={},
        numbers={},
        max_length=items.shape[1],
        seed=1,
    )
    model.grow({"item_id": N_ITEMS})
    loss, n_targets = model.train()({"item_id": items}, lengths, step_random(items))
    (loss / n_targets).backward()
    found = [each.grad for each in model.parameters() if each.grad is not None]
    return get_total_norm(found).item()


@pytest.mark.parametrize("n_layer", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "architecture", mark_slow([name for name, task in TRAINED if task == "clm"])
)
def test_an_unknown_first_item_does_not_swamp_the_gradient(architecture, n_layer):
    """A zero vector did: to 1e5 in T5, to infinity in XLNet, and clipping erased all the rest."""
    draw = torch.Generator().manual_seed(1)
    items = torch.randint(2, N_ITEMS + 2, (32, 20), generator=draw)
    lengths = torch.full((len(items),), items.shape[1])
    params = shipped(architecture, "clm", n_layer=n_layer)
    known = first_gradient_norm(params, items, lengths)
    items[:8, 0] = 1
    assert first_gradient_norm(params, items, lengths) == pytest.approx(known, rel=0.2)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """The first two days of the embedded data set, as windows."""
    folder = tmp_path_factory.mktemp("embedded")
    dataset = load_dataset("synthetic", ROOT / "datasets")
    synthetic = replace(dataset.source.synthetic, days=2)
    dataset = replace(dataset, source=replace(dataset.source, synthetic=synthetic))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(folder))
        download(dataset, "synthetic", folder / "raw")
        preprocess(
            folder / "raw",
            folder / "windows",
            dataset,
            PARAMS.window,
            PARAMS.preprocess,
            PARAMS.machine,
        )
    return folder / "windows"


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), TRAINED)
def test_a_window_is_fitted_and_the_next_one_predicted(embedded, tmp_path, architecture, task):
    params = shipped(architecture, task)
    params = replace(
        params,
        training=replace(params.training, fit_last=False),
        compute=replace(params.compute, processes=1),
    )
    results = tmp_path / "results"
    folders = {"windows": embedded, "models": tmp_path / "models", "cache": tmp_path / "cache"}
    train(Study(params=params, results=results, **folders))
    [row] = read_windows(results / "windows.csv", params.evaluation.cutoffs)
    assert row.metrics["recall_at_20"] > 0.02  # at random .005
