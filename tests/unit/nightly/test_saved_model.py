"""A saved model on a window: answers in raw ids, and the share of the items that it knows."""

from dataclasses import replace

import pytest

from dayahead.model.checkpoint import load_model
from dayahead.nightly.saved_model import SavedModel
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import tiny_study, train_study
from support.window_folders import day, markov_days, write_window_folder

N_ITEMS = 25


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    days = markov_days(4, 40, N_ITEMS)
    days[3].append([3, 900, 5])  # an item that the model does not know
    return write_window_folder(folder, days)


@pytest.fixture(scope="module", params=["gpt2", "transitions", "memory"])
def saved(request, windows, tmp_path_factory):
    """A model fitted up to the second day, and the ranks of the third by the pipeline."""
    out = tmp_path_factory.mktemp(request.param)
    sections = {"model": {"architecture": request.param}}
    short = {"training": {"fit_last": False}, **sections}
    train_study(windows, out, short, last=day(2))
    study = tiny_study(windows, out, sections)
    return out, SavedModel(out / "models", WindowFolder(windows), study.params)


def test_the_folder_is_read_once(saved, monkeypatch):
    model = replace(saved[1])
    n_reads = []
    monkeypatch.setattr(
        "dayahead.nightly.saved_model.load_model",
        lambda *args, **more: n_reads.append(1) or load_model(*args, **more),
    )
    window = model.windows.windows[2]
    assert model.smoke_check(window, 3).passed
    model.coverage(window)
    assert n_reads == [1]


def test_it_answers_sessions_in_raw_ids(saved):
    _, model = saved
    check = model.smoke_check(model.windows.windows[2], 7)
    assert check.passed, check.why
    assert check.why == "7 sessions answered"


def test_a_damaged_folder_does_not_answer(saved, tmp_path):
    _, model = saved
    check = SavedModel(tmp_path, model.windows, model.params).smoke_check(
        model.windows.windows[2], 7
    )
    assert not check.passed
    assert "not a complete model" in check.why


def test_coverage_is_the_share_of_events_on_known_items(saved):
    _, model = saved
    last = model.windows.windows[3]
    n_events = model.windows.item_counts(last, "train").sum()
    assert model.coverage(last) == pytest.approx((n_events - 1) / n_events)
