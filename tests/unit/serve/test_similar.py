"""Items like an item: by vectors and by pairs, against plain loops; what is refused."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError, DataError
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems
from support.stored_models import stored
from support.tiny_settings import counted

SESSIONS = [[2, 3, 4], [2, 3], [3, 2, 2], [5, 2, 4, 3], [6, 7]]
"""Vocabulary indices."""


def found(recommender, item, top_k=50, by=None, **options):
    [top] = SimilarItems(recommender).find([item], Options(top_k=top_k, **options), by)
    return top


def test_vectors_are_compared_by_their_cosine(load):
    model = load("gpt2")
    vectors = model.stored.model.inputs.items.weight.detach().double().numpy()
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    rows = {
        item: row
        for row, item in enumerate(model.stored.vocabularies["item_id"]["value"].to_pylist())
    }
    allowed = {model.stored.vocabularies["item_id"]["value"][int(c) - 2].as_py()
               for c in model.stored.candidates}  # fmt: skip
    top = found(model, 3)
    assert {item for item, _ in top} == allowed - {3}
    for item, score in top:
        assert score == pytest.approx(units[rows[3]] @ units[rows[item]], abs=1e-6)
    assert [score for _, score in top] == sorted((score for _, score in top), reverse=True)
    assert found(model, 3, 4) == top[:4]


def test_a_network_says_what_it_compares_by(load):
    network, memory = (SimilarItems(load(name)) for name in ("gpt2", "memory"))
    assert network.description() == "vectors: cosine of the item vectors of gpt2"
    assert memory.description().startswith("pairs: how often both items are clicked near each")
    with pytest.raises(
        ConfigError, match=r"^similar: gpt2 compares items by vectors; leave out --by"
    ):
        network.kind("pairs")
    with pytest.raises(
        ConfigError, match=r"^similar: memory compares items by pairs; leave out --by"
    ):
        memory.kind("vectors")
    none = Recommender(stored("popularity", "clm"))
    with pytest.raises(ConfigError, match=r"^similar: popularity has neither vectors nor pairs"):
        SimilarItems(none).kind()
    with pytest.raises(ConfigError, match="counts no pairs of items"):
        none.stored.model.pair_scorer()


def transitions(a, b):
    return sum({(a, b), (b, a)} >= {pair} for session in SESSIONS for pair in pairwise(session))


def cooccurrences(a, b):
    return sum(
        2 * (session[i] == a) * (session[j] == b)
        for session in SESSIONS
        for i in range(len(session))
        for j in range(len(session))
        if session[i] != session[j]
    )


def shared_sessions(a, b):
    return sum({a, b} <= {*session} for session in SESSIONS)


@pytest.mark.parametrize(
    ("architecture", "count"),
    [("transitions", transitions), ("cooccurrence", cooccurrences), ("sknn", shared_sessions)],
)
def test_pairs_by_hand(architecture, count):
    scores = counted(architecture, SESSIONS).pair_scorer()(np.arange(2, 8))
    items = range(2, 32)
    totals = {
        a: count(a, a)
        if architecture == "sknn"
        else sum(count(a, b) * (1 + (a == b)) for b in items)
        for a in items
    }
    for a in range(2, 8):
        for b in items:
            n = count(a, b) * (1 + (a == b and architecture == "transitions"))
            root = math.sqrt(totals[a] * totals[b])
            assert scores[a - 2, b - 2] == pytest.approx(n / root if root else 0), (a, b)


def test_weights_of_a_linear_model():
    model = counted("slist", SESSIONS)
    items, weights = model.weights()
    scores = model.pair_scorer()(np.array([3, 20]))
    row = list(items).index(1)
    assert scores[0, items] == pytest.approx(np.maximum(weights[row], 0))
    assert not scores[1].any()
    assert model.pairs_are == "weights of slist, from the item to the other"


def test_the_pairs_of_memory_by_hand():
    """One window: clicks a second apart, whose age is next to nothing."""
    scores = counted("memory", SESSIONS).pair_scorer()(np.arange(2, 8))
    met = np.zeros((40, 40))
    for session in SESSIONS:
        for i, a in enumerate(session):
            for j, b in enumerate(session):
                met[a, b] += 0 if i == j else 1 / abs(i - j)
    totals = met.sum(1)
    for a in range(2, 8):
        expected = met[a] / np.sqrt(np.maximum(totals[a] * totals, 1e-9))
        assert scores[a - 2] == pytest.approx(expected[2:32], rel=0.05)


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(2, 9), min_size=2, max_size=6), min_size=1, max_size=8))
def test_counted_pairs_are_alike_both_ways_and_at_most_1(sessions):
    for architecture in ("transitions", "cooccurrence", "vsknn", "memory"):
        scores = counted(architecture, sessions, 8).pair_scorer()(np.arange(2, 10))
        assert scores == pytest.approx(scores.T, rel=1e-4)
        assert scores.max() <= 1 + 1e-5
        assert scores.min() >= 0


def test_only_items_of_a_pair_come_back(load):
    model = load("transitions")
    scores = model.stored.model.pair_scorer()(np.array([2]))[0]
    first = model.stored.vocabularies["item_id"]["value"][0].as_py()
    assert len(found(model, first)) == sum(
        scores[index - 2] > 0 for index in model.stored.candidates if index != 2
    )


@pytest.mark.parametrize("name", ["gpt2", "memory"])
def test_filters_act_before_the_top_k(load, name):
    model = load(name)
    whole = [item for item, _ in found(model, 1)]
    assert [item for item, _ in found(model, 1, 2, deny=[whole[0], 99])] == whole[1:3]
    assert [item for item, _ in found(model, 1, 2, allow=[whole[3], 1, whole[2]])] == whole[2:4]
    assert found(model, 1, 2, allow=[]) == []


def test_several_items_are_answered_as_one_by_one(load):
    model = load("memory")
    both = SimilarItems(model).find([1, "2", 1], Options(top_k=3))
    assert both == [found(model, item, 3) for item in (1, 2, 1)]
    assert SimilarItems(model).find([], Options()) == []


def test_unknown_items_are_refused_with_a_suggestion():
    model = Recommender(stored("transitions", "clm"))
    with pytest.raises(DataError, match=r"^item 1115: the model does not know it; did you mean 11"):
        found(model, 1115)
    with pytest.raises(DataError, match=r"^item 7: .* an id of the data set, such as \d+, \d+$"):
        found(model, 7)
    with pytest.raises(DataError, match="expected a 64-bit integer"):
        found(model, "seven")


def test_items_of_the_log_after_the_last_fit_are_refused():
    written = stored("gpt2", "clm")
    written.config.known["item_id"] = 20
    model = Recommender(written)
    with pytest.raises(
        DataError, match=r"^item 122: it is in the log only after 2026-01-03, the last"
    ):
        found(model, 122)
    assert 117 in [item for item, _ in found(model, 103)]
    assert 122 not in [item for item, _ in found(model, 103)]


def test_the_command(saved_model, load):
    words = ["similar", "1", "2", "-k", "3", "--models", str(saved_model("gpt2"))]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    expected = [(str(a), str(b)) for a in (1, 2) for b, _ in found(load("gpt2"), a, 3)]
    assert [(a, b) for a, b, _ in lines] == expected
    assert done.stderr == "by vectors: cosine of the item vectors of gpt2\n"
    wrong = CliRunner().invoke(app, ["similar", "99", "--models", str(saved_model("gpt2"))])
    assert isinstance(wrong.exception, DataError)
