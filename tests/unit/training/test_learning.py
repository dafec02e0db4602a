"""Every body learns what popularity cannot know: each item here has two likely successors."""

import pytest

from dayahead.evaluation.tables import read_windows
from tiny_settings import BODIES, trained
from window_folders import markov_days, write_window_folder

TRAINING = {"batch_size": 32, "learning_rate": 0.01}
EPOCHS = {"clm": 8, "mlm": 24, "plm": 24, "rtd": 32}
"""The others than clm ask about a third of the items, and tell both sides of them."""
SIZES = {"d_model": 32, "init_std": 0.02, "item_init_std": 0.1}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    days = markov_days(n_days=3, sessions_per_day=250, n_items=40)
    return write_window_folder(tmp_path_factory.mktemp("windows"), days)


def last_recall(windows, out, architecture, task="clm"):
    """Recall at 2 on the last day, after two days of training."""
    sections = {
        "model": SIZES | {"architecture": architecture},
        "task": {"name": task},
        "training": TRAINING | {"epochs": EPOCHS[task]},
        "evaluation": {"cutoffs": [2]},
    }
    trained(windows, out, sections)
    return read_windows(out / "results" / "windows.csv", [2])[-1].metrics["recall_at_2"]


def test_popularity_knows_little_and_transitions_nearly_all(windows, tmp_path):
    assert last_recall(windows, tmp_path / "a", "popularity") < 0.2
    assert last_recall(windows, tmp_path / "b", "transitions") > 0.95


@pytest.mark.parametrize(
    ("architecture", "task"),
    [BODIES[0], *(pytest.param(*body, marks=pytest.mark.slow) for body in BODIES[1:])],
)
def test_every_body_comes_near_the_best_there_is(windows, tmp_path, architecture, task):
    assert last_recall(windows, tmp_path, architecture, task) > 0.8
