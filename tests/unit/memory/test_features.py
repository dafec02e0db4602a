"""Features of candidates by hand, and the context of prefixes."""

from dataclasses import replace

import numpy as np
import pytest

from dayahead.memory.categories import CategoryMemory
from dayahead.memory.memories import Memories
from support.clicks import HOUR, clicks
from support.memory_models import SETTINGS, SIZES

A, B, C, D = range(2, 6)
NAMES, CONTEXT = Memories(SETTINGS).features, Memories(SETTINGS).context
CATEGORY_DOUBT = CategoryMemory.prior


@pytest.fixture(scope="module")
def memories():
    found = Memories(SETTINGS)
    found.grow(SIZES)
    sessions = clicks(
        [[A, B], [A, C], [B, C, D]],
        times=[[0.5, 1], [0, 1], [1, 1, 1]],
        categories=[[(3,), (0,)], [(4,), (0,)], [(3,), (3,), (0,)]],
    )
    found.add([sessions], HOUR)
    return found


def features(memories, prefix, item, **more):
    read = memories.reader(8)(clicks([prefix], **more))
    values = read.features[0, read.candidates[0].tolist().index(item)]
    return dict(zip(NAMES, values.tolist(), strict=True))


def test_a_count_becomes_the_log_of_a_smoothed_share(memories):
    """A was followed by B and by C once each."""
    popularity = memories.known.popularity
    found = features(memories, [A], B)
    assert found["pair.next.4"] == pytest.approx(np.log((1 + 3 * popularity[B]) / (2 + 3)))
    assert found["pair.next.0.25"] == pytest.approx(np.log((1 + popularity[B]) / (2 + 1)))
    found = features(memories, [A], D)
    assert found["pair.next.4"] == pytest.approx(np.log(3 * popularity[D] / (2 + 3)))


def test_an_item_without_pairs_is_expected_by_popularity(memories):
    assert features(memories, [D], B)["pair.end.4"] == pytest.approx(
        np.log(memories.known.popularity[B])
    )


def test_a_category_is_compared_with_what_is_expected_without_it(memories):
    """Under 3 came B, C and D; from A under 3 only B."""
    share = memories.known.popularity[B]
    found = features(memories, [A], B, categories=[[(3,)]])
    clicked = (1 + CATEGORY_DOUBT * share) / (3 + CATEGORY_DOUBT) / share
    assert found["category.clicks.device.2"] == pytest.approx(np.log(clicked), rel=1e-4)
    base = np.exp(found["pair.next.4"])
    followed = (1 + CATEGORY_DOUBT * base) / (1 + CATEGORY_DOUBT) / base
    assert found["category.next.device.2"] == pytest.approx(np.log(followed), rel=1e-4)


def test_an_items_counts_and_times_are_logarithms(memories):
    found = features(memories, [A], A)
    assert found["item.clicks.0.5"] == pytest.approx(np.log(2**-1 + 2**-2 + 0.1))
    assert found["item.age"] == pytest.approx(np.log(1 + 1 / 60))
    assert found["item.unseen"] == pytest.approx(np.log(0.5 + 1 / 60))


def test_own_items_say_where_they_are(memories):
    found = [features(memories, [A, B, A, C], item) for item in (A, B, C, D)]
    own = [[each[f"own.{name}"] for name in ("is_known", "position", "is_last")] for each in found]
    assert own == [[1, 0.5, 0], [1, pytest.approx(1 / 3), 0], [1, 1, 1], [0, 0, 0]]


def test_every_name_is_once_there_and_a_network_comes_last():
    names = Memories(replace(SETTINGS, columns=("device", "os"), with_network=True)).features
    assert len(set(names)) == len(names) == len(NAMES) + 3
    assert names[-1] == "network.log_softmax"


def test_context_by_hand(memories):
    rows = clicks([[A, B], [6]], times=[[1.0, 1.5], [25.0]], categories=[[(0,), (17,)], [(2,)]])
    values = memories.reader(8)(rows).context
    first, second = (dict(zip(CONTEXT, row, strict=True)) for row in values)
    assert first["prefix.length"] == pytest.approx(np.log(2))
    assert (first["prefix.is_single"], second["prefix.is_single"]) == (0, 1)
    assert first["prefix.dwell"] == pytest.approx(np.log1p(1800))
    assert (first["prefix.since_window"], second["prefix.since_window"]) == (0.5, 2)
    assert first["mass.pair.next.4"] == pytest.approx(np.log1p(1))
    assert (first["last.is_new"], second["last.is_new"]) == (0, 1)
    assert second["mass.neighbours.items.4"] == second["last.peak"] == 0
    assert first["last.peak"] == pytest.approx(1 / 2)
    assert second["hour.sin"] == pytest.approx(np.sin(2 * np.pi / 24))
    assert [name for name in first if name.startswith("device") and first[name]] == ["device.1"]


def test_the_odds_of_an_own_item_by_the_pairs_of_the_last(memories):
    """A led to B and to C, B to C once, D to nothing."""
    rows = clicks([[B, C, A], [B, A], [A, B], [A, D]])
    column = CONTEXT.index("own.pairs")
    odds = [2.5 / 0.5, 1.5 / 1.5, 0.5 / 1.5, 0.5 / 0.5]
    for n_candidates in (8, 3):  # own items are the first candidates
        values = memories.reader(n_candidates)(rows).context[:, column]
        assert values == pytest.approx(np.log(odds))
