"""SLIS, SLIT and SLIST against their closed forms on dense matrices, built row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.config.baselines import LINEAR
from support.baseline_settings import LINEAR as SETTINGS
from support.tiny_settings import baseline, count_window, scores_after

N_ITEMS = 8
A, B, C, D, E = range(2, 7)
DAY = 86_400
every_variant = pytest.mark.parametrize("variant", LINEAR)
items = st.integers(2, 1 + N_ITEMS)
sessions = st.lists(st.lists(items, min_size=2, max_size=6), min_size=1, max_size=10)
scales = st.sampled_from([0.5, 2.0])
configs = st.fixed_dictionaries(
    {
        "n_items": st.just(N_ITEMS),
        "regularization": st.sampled_from([0.1, 3.0]),
        "similarity_share": st.sampled_from([0.0, 0.3, 1.0]),
        "train_scale": scales,
        "predict_scale": scales,
        "age_scale": scales,
    }
)


def fitted(variant, windows, **changes):
    """A model of N_ITEMS items fitted on windows of sessions; each window starts a day later."""
    model = baseline(variant, N_ITEMS, linear=SETTINGS | changes)
    for number, window in enumerate(windows):
        count_window(model, window, start=number * DAY)
    return model


def dense(weights):
    row = np.zeros(N_ITEMS)
    for item, weight in weights:
        row[item - 2] += weight
    return row / row.sum()


def rows_of(config, session):
    """Inputs and targets of SLIT: one pair for each event but the first."""
    for split in range(1, len(session)):
        before = [(item, np.exp((i - split + 1) / config["train_scale"]))
                  for i, item in enumerate(session[:split])]  # fmt: skip
        after = [(item, np.exp(-i / config["train_scale"]))
                 for i, item in enumerate(session[split:])]  # fmt: skip
        yield dense(before), dense(after)


def weights_by_rows(config, variant, windows):
    """The matrix of weights [n, n]."""
    share = {"slis": 1.0, "slit": 0.0}.get(variant, config["similarity_share"])
    starts = [n * DAY + i for n, window in enumerate(windows) for i in range(len(window))]
    log = [session for window in windows for session in window]
    gram, cross = np.eye(N_ITEMS) * config["regularization"], np.zeros((N_ITEMS, N_ITEMS))
    for start, session in zip(starts, log, strict=True):
        age = np.exp((start / DAY - len(windows)) / config["age_scale"])
        whole = dense([(item, 1.0) for item in set(session)])
        gram += share * age * np.outer(whole, whole)
        cross += share * age * np.outer(whole, whole)
        for before, after in rows_of(config, session):
            gram += (1 - share) * age * np.outer(before, before)
            cross += (1 - share) * age * np.outer(before, after)
    return np.linalg.inv(gram) @ cross


@pytest.mark.long
@every_variant
@settings(max_examples=20)
@given(configs, st.lists(sessions, min_size=1, max_size=3), st.lists(items, min_size=1, max_size=5))
def test_scores_are_those_of_the_closed_form(variant, config, windows, query):
    scores = scores_after(fitted(variant, windows, **config), query).numpy()
    decays = np.exp((np.arange(len(query)) + 1 - len(query)) / config["predict_scale"])
    weights = weights_by_rows(config, variant, windows)
    wanted = decays @ weights[np.array(query) - 2]
    assert scores[wanted > 1e-6] == pytest.approx(wanted[wanted > 1e-6], rel=1e-4)
    assert (scores[wanted < -1e-6] < 0).all()


@every_variant
def test_only_the_items_with_most_weight_are_modelled(variant):
    log = [[A, B], [A, B], [A, B], [C, D]]
    model = fitted(variant, [log], n_items=2)
    assert model.weights()[0].tolist() == [A - 2, B - 2]
    assert (scores_after(model, [D]) < 0).all()


@every_variant
def test_other_items_rank_below_by_popularity(variant):
    model = fitted(variant, [[[A, B], [C, D], [C, E], [C, D]]])
    scores = scores_after(model, [A])
    assert {item + 2 for item in (scores > 0).nonzero()[:, 0].tolist()} == {
        "slis": {A, B},
        "slit": {B},
        "slist": {A, B},
    }[variant]
    assert scores[C - 2] > scores[D - 2] > scores[E - 2] > scores[7]
    assert scores[7] == -1


@every_variant
def test_products_that_have_faded_are_forgotten(variant):
    model = fitted(variant, [[[A, B], [B, C]], [[D, E]]], age_scale=0.01)
    assert model.cross.nnz <= 4
    assert (scores_after(model, [A]) < 0).all()
