"""Values without an index until after the evaluated window: evaluation and service read them alike.

A past holds such items from windows that were dropped, a session categories below their min_count.
"""

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, SESSION_ID, USER_ID
from dayahead.distributed.process import Rank
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.train.batches import Sessions
from dayahead.train.saved_model import saved_ranks
from support.builders import dataset_config, events, session
from support.tiny_settings import train_study
from support.window_folders import markov_days

NEW, LATER = 50, 60
"""Of a dropped window; the evaluated one is the first kept window with NEW, the last with LATER."""
RARE = "green"
"""Frequent enough for an index in the last window."""
COLOURS = ["red", "blue"]


def clicks(name, items, day, user, colours=COLOURS):
    rows = session(name, items, f"2026-01-0{day} 09:00", user_id=user)
    return [row | {"colour": colours[n % 2]} for n, row in enumerate(rows)]


def days():
    for n, items in enumerate(markov_days(n_days=1, sessions_per_day=30, n_items=8)[0]):
        yield from clicks(f"a{n}", [*items, 1], 1, f"u{n}")
    yield from clicks("b0", [2, LATER], 2, "u0")
    yield from clicks("b1", [LATER, NEW], 2, "u1")
    yield from clicks("c0", [1, 2, 3], 3, "u0")
    yield from clicks("c1", [3, 1, 4], 3, "u1")
    yield from clicks("c2", [NEW, 3, 1, 2], 3, "u2", ["red", RARE])
    for user in range(3, 40):
        yield from clicks(f"b{user}", [LATER], 2, f"u{user}")  # too short for a session
        last = LATER if user % 5 == 0 else 3 * user % 8
        yield from clicks(f"d{user}", [user % 8, LATER, 2, last], 4, f"u{user}", [RARE, "red"])


LOG = events([*days()])
MODELS = [
    pytest.param({"architecture": "gpt2"}, id="gpt2"),
    pytest.param({"architecture": "memory"}, id="memory", marks=pytest.mark.slow),
    pytest.param(
        {"architecture": "memory", "network": "gpt2"},
        id="memory with gpt2",
        marks=pytest.mark.slow,
    ),
]
OF_HEAD = {"head_width": 32, "first_epochs": 60, "batch_size": 4}


@pytest.fixture
def fit(run, tmp_path):
    """Fit a model on the first window; return the windows and the recommender."""
    dataset = dataset_config(
        columns={"user_id": "user_id"},
        features={"colour": {"kind": "categorical", "column": "colour", "min_count": 3}},
        past_max_length=3,
    )
    store = run(LOG, dataset, min_sessions=3)
    assert [entry.state for entry in store.manifest.windows] == ["kept", "dropped", "kept", "kept"]

    def fitted(**model):
        sections = {
            "model": {"features": ["colour"], "past_length": 3, **model},
            "memory": OF_HEAD,
            "window": {"last": store.windows[1].name},
            "training": {"fit_last": False},
        }
        train_study(store.folder, tmp_path, sections)
        return store, Recommender.load(tmp_path / "models")

    return fitted


def recommended(recommender, name):
    """Scores by raw item after a session's events but the last, and the past of its user."""
    own = LOG.filter(pc.equal(LOG[SESSION_ID], name))
    past = LOG.filter(pc.equal(LOG[USER_ID], own[USER_ID][0]))
    return dict(recommender.recommend_after(own.slice(0, len(own) - 1), 99, past))


@pytest.mark.parametrize("catalogue", [pytest.param("grow", marks=pytest.mark.slow), "full"])
@pytest.mark.parametrize("model", MODELS)
def test_evaluation_and_recommendations_have_the_same_scores(fit, model, catalogue):
    store, recommender = fit(catalogue=catalogue, **model)
    stored = recommender.stored
    own = [ITEM_ID, EVENT_TIME, "colour"]
    columns = [SESSION_ID, *own, *(f"bef_{name}" for name in own)]
    table = store.read(store.windows[1], "all", columns)
    sessions = Sessions.from_table(table.drop([SESSION_ID]), 3)
    batch = sessions.gather(torch.arange(len(sessions)), Rank(0, 1))
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    scores = scorer(batch.columns, batch.lengths - 1).detach().numpy()
    raw = stored.vocabularies[ITEM_ID]["value"].to_pylist()
    for name, evaluated in zip(table[SESSION_ID].to_pylist(), scores, strict=True):
        found = recommended(recommender, name)
        live = [found[raw[index - N_RESERVED]] for index in stored.candidates]
        np.testing.assert_allclose(live, evaluated, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_a_saved_model_has_the_same_ranks_in_a_window_after_the_next(fit):
    store, recommender = fit(catalogue="full", architecture="gpt2")
    ranks = saved_ranks(recommender.stored, store, store.windows[2], "all")
    raw = store.vocabulary(ITEM_ID)["value"].to_pylist()
    ids = ranks.session_ids.to_pylist()
    for name, target, rank in zip(ids, ranks.targets, ranks.ranks, strict=True):
        found = recommended(recommender, name)
        score = found.get(raw[target - N_RESERVED], -np.inf)  # LATER is no candidate of all
        assert rank == 1 + sum(other > score for other in found.values()), name


@pytest.mark.parametrize("catalogue", ["grow", "full"])
def test_a_session_of_later_items_is_cold(fit, catalogue):
    _, recommender = fit(catalogue=catalogue, architecture="gpt2")

    def ranked(items, past):
        own = {ITEM_ID: items, "colour": ["red"] * len(items)}
        before = {ITEM_ID: past, "colour": ["red"] * len(past), EVENT_TIME: [0.0] * len(past)}
        tables = [recommender.events_with(each) for each in (own, before)]
        sessions = RawSessions.of([tables[0]], [tables[1]])
        found = recommender.rank(sessions, [Options(top_k=3, cold_start="popularity")])
        return bool(found.is_cold[0]), found.is_unknown.tolist()

    assert ranked([LATER], [LATER]) == (True, [True])
    assert ranked([LATER, 3], [LATER]) == (False, [True, False])
    assert ranked([LATER], [3]) == (False, [True])


def test_past_events_that_are_none_make_no_session_warm(fit):
    _, recommender = fit(catalogue="full", architecture="gpt2")
    own = {ITEM_ID: [LATER], "colour": ["red"], EVENT_TIME: [1e9]}
    after = {ITEM_ID: [3], "colour": ["red"], EVENT_TIME: [1e9 + 60]}
    tables = [recommender.events_with(each) for each in (own, after)]
    sessions = RawSessions.of([tables[0]], [tables[1]])
    found = recommender.rank(sessions, [Options(top_k=3, cold_start="popularity")])
    assert bool(found.is_cold[0])


@pytest.mark.slow
def test_an_empty_session_with_a_past_is_explained(fit):
    _, recommender = fit(architecture="memory")
    past = recommender.events_with({ITEM_ID: [3], "colour": ["red"], EVENT_TIME: [0.0]})
    [parts] = recommender.explain(past.slice(0, 0), [1], past)
    assert parts
    assert recommender.explain(past.slice(0, 0), [1]) == [{}]
