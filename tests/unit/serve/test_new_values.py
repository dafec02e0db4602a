"""Values first seen in the evaluated window: evaluation reads them as serving does, as unknown."""

import numpy as np
import pytest
import torch

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED
from dayahead.distributed.process import Rank
from dayahead.serve.recommender import Recommender
from dayahead.train.batches import Sessions
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import train_study
from support.window_folders import (
    add_pasts,
    events_before,
    markov_days,
    raw_events,
    write_window_folder,
)

NEW, OF_NEW_CATEGORY = 99, 101
"""New on day 1, of an old category and of a new one."""
OLD_DAYS = [
    [[item + item // 2 for item in session] for session in sessions]  # of the categories 0 and 1
    for sessions in markov_days(n_days=1, sessions_per_day=40, n_items=12)
]
EVALUATED = [
    [3, NEW, 4, 6],
    [NEW, 3, 7],
    [OF_NEW_CATEGORY, 3, 4],
    [3, OF_NEW_CATEGORY, 4],
    [1, OF_NEW_CATEGORY, NEW, 3],
    [1, 3, 4],
    [4, 3],
]
DAYS = [*OLD_DAYS, EVALUATED]
PASTS = [
    [[session[0]] if i % 2 else [] for i, session in enumerate(OLD_DAYS[0])],
    [[], [3], [4, NEW], [NEW, OF_NEW_CATEGORY], [], [1, OF_NEW_CATEGORY], [OF_NEW_CATEGORY, 4]],
]
MODELS = [
    pytest.param({"architecture": "gpt2"}, id="gpt2"),
    pytest.param({"architecture": "memory"}, id="memory"),
    pytest.param(
        {"architecture": "memory", "network": "gpt2"},
        id="memory with gpt2",
        marks=pytest.mark.slow,
    ),
]
OF_HEAD = {"head_width": 32, "first_epochs": 60, "batch_size": 4}
"""Enough for a head whose scores depend on every part of the context."""


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, tmp_path_factory):
    """Day 0 fitted, with features and pasts; the recommender and day 1 as evaluation reads it."""
    folder = tmp_path_factory.mktemp("new")
    windows = write_window_folder(folder / "windows", DAYS, features=True, category_days=(0, 0, 1))
    add_pasts(windows, PASTS, longest=3)
    model = {"features": ["category"], "past_length": 3, **request.param}
    sections = {"model": model, "memory": OF_HEAD, "training": {"fit_last": False}}
    train_study(windows, folder, sections)
    store = WindowFolder(windows)
    own = [ITEM_ID, EVENT_TIME, "category"]
    columns = [*own, *(f"bef_{name}" for name in own)]
    sessions = Sessions.from_table(store.read(store.windows[1], "train", columns), 3)
    batch = sessions.gather(torch.arange(len(sessions)), Rank(0, 1))
    return Recommender.load(folder / "models"), batch


def evaluated(recommender, columns, n_known):
    stored = recommender.stored
    return stored.model.scorer(torch.from_numpy(stored.candidates).long())(columns, n_known)


@pytest.mark.long
def test_evaluation_and_recommendations_have_the_same_scores(fitted):
    recommender, batch = fitted
    scores = evaluated(recommender, batch.columns, batch.lengths - 1)
    raw = recommender.stored.vocabularies[ITEM_ID]["value"].to_pylist()
    for row, session in enumerate(EVALUATED):
        past = events_before(PASTS[1][row], 1, row) if PASTS[1][row] else None
        events = raw_events(session[:-1], 1, row)
        found = dict(recommender.recommend_after(events, 99, past, cold_start="model"))
        live = [found[raw[index - N_RESERVED]] for index in recommender.stored.candidates]
        np.testing.assert_allclose(live, scores[row], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [ITEM_ID, "category"])
def test_it_does_not_matter_which_new_value_it_is(fitted, name):
    recommender, batch = fitted
    n_known = len(recommender.stored.vocabularies[name])
    values = batch.columns[name]
    is_new = values >= N_RESERVED + n_known
    assert is_new.any()
    others = {name: torch.where(is_new, values + 7, values)}
    scores, changed = (
        evaluated(recommender, batch.columns | each, batch.lengths - 1) for each in ({}, others)
    )
    assert torch.equal(changed, scores)
