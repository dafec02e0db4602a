"""Content of items: cosines with the session, and candidates without a click."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.memory.content import N_NEW, STEPS, Content, ContentSource, NewItemSearch
from dayahead.memory.evidence import CandidateBatch
from dayahead.windows.items import ItemTable
from support.clicks import clicks, random_clicks
from support.listed_items import VECTOR, Row, table_of
from support.memory_models import N_ITEMS, SETTINGS, SIZES, fitted, window

A, B, C, D = 2, 3, 4, 5
X, Y, XY = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.6, 0.8, 0.0)
WITH_VECTORS = replace(SETTINGS, vectors=(VECTOR,))


def content_of(vectors, n=8):
    rows = [Row(item, vector) for item, vector in vectors.items()]
    return Content.of(ItemTable(table_of(rows, [*vectors])), WITH_VECTORS, n)


def features_of(content, prefixes, candidates, seen=(A, B, C)):
    nothing, is_seen = np.zeros((1, 1, 1), np.float32), np.zeros(8, bool)
    is_seen[[*seen]] = True
    batch = CandidateBatch(
        prefixes, np.array(candidates, np.int32), nothing, nothing, content=content, is_seen=is_seen
    )
    return ContentSource(WITH_VECTORS).features(batch)


def test_cosines_with_the_last_item_and_with_the_mean_of_all_by_their_place():
    content = content_of({A: X, B: Y, C: XY, D: XY})
    found = features_of(content, clicks([[A, B]]), [[A, B, C, D, 0]])
    mean = np.array([1 / 2, 1]) / np.hypot(1 / 2, 1)  # A is second from the end
    of_xy = 0.6 * mean[0] + 0.8 * mean[1]
    wanted = [[0, mean[0], 0], [1, mean[1], 0], [0.8, of_xy, 0], [0.8, of_xy, 0.8], [0, 0, 0]]
    assert found[0] == pytest.approx(np.array(wanted), abs=1 / STEPS)


def test_an_item_without_a_vector_is_like_none():
    found = features_of(content_of({A: X}), clicks([[B]]), [[A, B]])
    assert not found.any()


def test_without_a_table_there_is_no_content():
    nothing = Content.of(None, WITH_VECTORS, 8)
    assert not nothing.is_listed.any()
    assert nothing.new_items(np.ones(8, bool)) is None
    assert not features_of(None, clicks([[A]]), [[A, B]]).any()


def test_the_nearest_new_items_replace_the_last_candidates():
    content = content_of({A: X, B: Y, C: XY, D: X})
    search = content.new_items(np.isin(np.arange(8), [C, D, 7]))  # 7 is not listed
    candidates = np.array([[A, B, 6, 7], [A, B, 6, 7]], np.int32)
    found = search.add_to(candidates, clicks([[A], [B]]))
    assert found.tolist() == [[A, B, 6, D], [A, B, 6, C]]


def test_a_new_item_of_the_session_is_no_second_candidate_and_none_is_lost():
    content = content_of({A: X, D: X})
    search = content.new_items(np.isin(np.arange(8), [D]))
    found = search.add_to(np.array([[D, A, B, 6]], np.int32), clicks([[D]]))
    assert found.tolist() == [[D, A, B, 6]]


def test_items_that_have_nothing_in_common_are_no_candidates():
    search = content_of({A: X, D: Y}).new_items(np.isin(np.arange(8), [D]))
    candidates = [[A, 0, 0, 0]]
    assert search.add_to(np.array(candidates, np.int32), clicks([[A]])).tolist() == candidates


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_search_agrees_with_loops_in_any_batch(seed):
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(60, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.round(vectors * STEPS).astype(np.float32) / STEPS
    new = 2 + np.flatnonzero(draw.random(58) < 0.6)
    items = draw.integers(0, 60, 12)
    whole, alone = NewItemSearch(vectors, new), NewItemSearch(vectors, new)
    found = whole._nearest(items)
    exact = vectors.astype(np.float64)
    for row, item in enumerate(items):
        cosines = [(-float(exact[item] @ exact[each]), each) for each in new.tolist()]
        wanted = [each for score, each in sorted(cosines) if score < 0][:N_NEW]
        assert found[row][found[row] > 0].tolist() == wanted
        assert (alone._nearest(items[row : row + 1]) == found[row]).all()


def test_values_of_the_table_precede_those_of_clicks():
    sessions, end = window(0, 0)
    model = fitted((sessions, end), vectors=(VECTOR,))
    prefixes = random_clicks(1, n_items=N_ITEMS)
    before = model.memories.reader(8)(prefixes)
    value = int(model.memories.memories["attributes"].values.max())
    rows = [Row(item, X, category=value) for item in range(2, N_ITEMS + 2)]
    model.memories.know_items(
        ItemTable(
            table_of(rows, range(2, N_ITEMS + 2)).rename_columns(
                ["first_window", "item_id", "device", VECTOR, "available_from", "available_until"]
            )
        )
    )
    after = model.memories.reader(8)(prefixes)
    assert (after.candidates == before.candidates).all()
    last = model.features.index("attribute.device.last")
    is_same = prefixes.categories[prefixes.last, 0] == value
    assert (after.features[:, :, last] == is_same[:, None] * (after.candidates > 0)).all()


def test_a_click_makes_an_item_one_like_the_others():
    sessions, end = window(0, 0)
    model = fitted(vectors=(VECTOR,))
    new = N_ITEMS + 2
    model.grow({**SIZES, "item_id": N_ITEMS + 1})
    rows = [Row(item, X) for item in range(2, new + 1)]
    model.memories.know_items(ItemTable(table_of(rows, range(2, new + 1)).drop(["category"])))
    model.fit(sessions, end)
    prefix = clicks([[A, B]])
    content = [model.features.index(f"content.title.{kind}") for kind in ("last", "new")]

    def features():
        found = model.memories.reader(20)(prefix)
        return found.features[0, found.candidates[0] == new][:, content].tolist()

    assert features() == [[1, 1]]
    model.fit(clicks([[A, new]], times=[[1.2, 1.3]]), end * 2)
    assert features() == [[1, 0]]
