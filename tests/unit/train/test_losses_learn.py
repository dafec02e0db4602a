"""Every loss learns what popularity cannot know: each item here has two likely successors."""

import pytest
import torch

from dayahead.metrics.tables import read_windows
from dayahead.model.checkpoint import load_model
from dayahead.model.losses import SAMPLED_LOSSES
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder

EPOCHS = {"gbce": 24}
"""Binary cross entropy stands still until every score has come down; the others take 8."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    days = markov_days(n_days=3, sessions_per_day=500, n_items=40)
    return write_window_folder(tmp_path_factory.mktemp("windows"), days)


def recall(windows, out, name, **loss):
    """Recall at 2 on the last day, after two days of training; by popularity less than .2."""
    sections = {
        "model": {"d_model": 32, "init_std": 0.1, "item_init_std": 0.1},
        "loss": {"name": name, **loss},
        "training": {"batch_size": 32, "learning_rate": 0.01, "epochs": EPOCHS.get(name, 8)},
        "evaluation": {"cutoffs": [2]},
    }
    train_study(windows, out, sections)
    return read_windows(out / "results" / "windows.csv", [2])[-1].metrics["recall_at_2"]


# Some items here follow none. So they are no target and no negative of the batch: gBCE, which holds
# scores against 0 and not against each other, leaves theirs above, and TOP1-max a few.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "negatives"),
    [
        *((name, 20) for name in SAMPLED_LOSSES),
        *((name, 0) for name in SAMPLED_LOSSES if name != "gbce"),
    ],
)
def test_every_loss_does_with_negatives_of_one_kind(windows, tmp_path, name, negatives):
    """Drawn ones, or the batch's targets."""
    of_batch = not negatives
    found = recall(windows, tmp_path, name, negatives=negatives, negatives_of_batch=of_batch)
    assert found > 0.9


def test_the_stored_model_knows_every_event_it_was_fitted_on(tmp_path):
    days = markov_days(n_days=3, sessions_per_day=20, n_items=10)
    windows = write_window_folder(tmp_path / "windows", days)
    train_study(windows, tmp_path, {"loss": {"name": "gbce"}, "training": {"epochs": 2}})
    model = load_model(tmp_path / "models").model
    store = WindowFolder(windows)
    events = [
        item
        for window in store.windows
        for session in store.read(window, "train", ["item_id"])["item_id"].to_pylist()
        for item in session
    ]
    counts = torch.bincount(torch.tensor(events) - 2, minlength=model.n_items)
    assert torch.equal(model.sampler.counts, 2 * counts)
