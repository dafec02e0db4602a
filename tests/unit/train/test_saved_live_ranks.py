"""A saved model with ticks: evaluated as the pipeline does, and as it was before afterwards."""

import numpy as np
import pytest
import torch

import dayahead
from dayahead.metrics.metrics import target_metric
from dayahead.model.checkpoint import load_model
from dayahead.outputs.tables import read_ranks, read_windows
from dayahead.train.saved_model import saved_ranks
from dayahead.windows.folder import WindowFolder
from support.live_windows import LIVE, WITH_GPT2, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.window_folders import day, markov_days, write_window_folder

EVERY = {"evaluation": {"split": "all", "positions": "all"}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Three days; from the second on each has items of its own, in every fourth session."""
    days = markov_days(n_days=3, sessions_per_day=20, n_items=30)
    for number, sessions in enumerate(days[1:], start=1):
        for session in sessions[::4]:
            session += [100 + number, 200 + number]
    folder = tmp_path_factory.mktemp("windows")
    return spread_sessions(write_window_folder(folder, days, features=True))


def fitted(windows, out, number, sections):
    """A model fitted up to a day, as it is read to be served."""
    train_study(windows, out, sections, last=day(max(1, number)))
    return load_model(out / "models", to_fit=False)


def equal_states(model, folder):
    """Whether a model is as it was saved, but for what only fits read."""
    state, saved = model.state_dict(), load_model(folder / "models").model.state_dict()
    names = [name for name in saved if not name.startswith(model.read_by_fits_alone)]
    return len(names) > 10 and all(torch.equal(state[name], saved[name]) for name in names)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sections", "catalogue", "candidates"),
    [(LIVE, "full", "seen"), (WITH_GPT2, "grow", "seen"), (LIVE, "grow", "known")],
    ids=["none-full", "gpt2-grow", "none-grow-known"],
)
def test_its_ranks_are_those_of_the_pipeline(windows, tmp_path, sections, catalogue, candidates):
    model = sections["model"] | {"catalogue": catalogue, "features": ["category"]}
    evaluation = EVERY["evaluation"] | {"candidates": candidates}
    sections = merge_sections(sections, model=model, evaluation=evaluation)
    train_study(windows, tmp_path / "longer", sections)
    stored = fitted(windows, tmp_path / "shorter", 1, sections)
    folder, wanted = WindowFolder(windows), read_ranks(tmp_path / "longer" / "results", day(2))
    for _ in range(2):
        found = saved_ranks(stored, folder, folder.windows[2], "all", "all")
        assert np.array_equal(found.ranks, wanted.ranks)
        assert found.session_ids.equals(wanted.session_ids)
    is_new = found.targets >= folder.n_known("item_id", folder.windows[1]) + 2
    assert 0 < (found.ranks[is_new] > 0).mean() < 1
    assert equal_states(stored.model, tmp_path / "shorter")


@pytest.mark.long
def test_the_interface_evaluates_it_so_too(windows, tmp_path):
    out = train_study(windows, tmp_path / "out", merge_sections(LIVE, training={"fit_last": False}))
    [*_, last] = read_windows(out / "results" / "windows.csv", [1, 5])
    recommender = dayahead.load_model(out / "models")
    before = recommender.recommend([3, 4], 5)
    for _ in range(2):
        found = dayahead.evaluate(recommender, windows, split="all", cutoffs=[1, 5])
        assert found == last.metrics
        assert recommender.recommend([3, 4], 5) == before


def test_it_counts_the_windows_between_as_a_service_does(tmp_path):
    """What only the second day brought, a candidate of the third, and what the third brings."""
    days = [[[1, 2], [2, 3], [3, 1]], [[1, 9], [2, 9]], [[2, 9], [1, 8]]]
    windows = spread_sessions(write_window_folder(tmp_path / "windows", days))
    last = {"training": {"fit_last": False}}
    stored = fitted(windows, tmp_path / "out", 1, merge_sections(LIVE, **last))
    assert stored.config.window == day(0)
    folder = WindowFolder(windows)
    ranks = saved_ranks(stored, folder, folder.windows[2], "all").ranks
    assert (ranks > 0).tolist() == [True, False]


@pytest.mark.long
def test_a_window_that_it_was_fitted_on_comes_again_after_it(windows, tmp_path):
    out, folder = tmp_path / "out", WindowFolder(windows)
    stored = fitted(windows, out, 2, LIVE)
    ranks = saved_ranks(stored, folder, folder.windows[2], "all").ranks
    assert (ranks > 0).all()
    metric = "mrr_at_5"
    before = target_metric(metric, read_ranks(out / "results", day(2)).ranks).mean()
    assert target_metric(metric, ranks).mean() > before
    assert equal_states(stored.model, out)
