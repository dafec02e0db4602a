"""The user's past: its features by hand; its clicks are counted once, in their own sessions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dayahead.memory.clicks import Clicks
from dayahead.memory.context import PAST_NAMES as PAST_CONTEXT
from dayahead.memory.memories import Memories
from dayahead.memory.own import PastItems
from dayahead.memory.past import PastMemory
from support.clicks import HOUR, clicks, prefixes_of, random_clicks, seeds, with_pasts
from support.memory_models import SETTINGS, SIZES, fitted, windows_with_pasts

A, B, C, D, E = range(2, 7)
READS_PAST = replace(SETTINGS, with_past=True)
PAST_NAMES = (*PastItems.names, *PastMemory(SETTINGS).names)
PAST_DOUBT = PastMemory.prior
PREFIXES = prefixes_of(with_pasts(random_clicks(99, start=3), 98))


def memories(sessions, chosen=READS_PAST):
    found = Memories(chosen)
    found.grow(SIZES)
    found.add([sessions], HOUR)
    return found


def features(past, item, prefix=(E,)):
    """The features of an item after a past."""
    found = memories(clicks([[A, C], [A, D], [B, C], [E, A]]))
    read = found.reader(8)(replace(clicks([prefix]), past=clicks([past])))
    values = read.features[0, read.candidates[0].tolist().index(item), -len(PAST_NAMES) :]
    return dict(zip(PAST_NAMES, values.tolist(), strict=True))


@pytest.mark.parametrize(
    ("past", "wanted"),
    [([], [0, 0, 0]), ([B, A], [1, 1 / 2, 0]), ([A, B], [1, 1, 1]), ([B, B, A, A], [1, 1 / 3, 0])],
)
def test_items_of_the_past_say_where_they_are(past, wanted):
    found = features(past, B)
    assert [found[f"past.{name}"] for name in ("is_known", "position", "is_last")] == pytest.approx(
        wanted
    )


def test_what_followed_such_pasts_is_compared_with_popularity():
    """After pasts that end with B came C, then D; after one that ends with A came E."""
    rows = replace(clicks([[C, D], [E], [A]]), past=clicks([[A, B], [A], []]))
    found = memories(rows)
    read = found.reader(8)(replace(clicks([[E]]), past=clicks([[D, B]])))
    of_items = dict(zip(read.candidates[0].tolist(), read.features[0], strict=True))
    for item, count in ((C, 1), (D, 1 / 2), (E, 0)):
        share = found.known.popularity[item]
        expected = np.log((count + PAST_DOUBT * share) / (1.5 + PAST_DOUBT) / share)
        assert of_items[item][found.features.index("past.next.4")] == pytest.approx(
            expected, abs=1e-5
        )


def test_an_empty_past_expects_nothing():
    assert list(features([], C).values()) == pytest.approx([0] * len(PAST_NAMES), abs=1e-6)


def test_the_context_says_how_long_and_how_old_a_past_is():
    rows = clicks([[A, B], [A]], times=[[2.0, 2.5], [3.0]])
    rows = replace(rows, past=clicks([[A, C, D], []], times=[[0, 1, 1.5], []]))
    found = memories(clicks([[A, C]])).reader(4)(rows).context[:, -len(PAST_CONTEXT) :]
    assert found.tolist() == [
        pytest.approx([np.log(4), np.log(2), 0]),
        pytest.approx([0, 0, 1]),
    ]


def test_items_of_the_past_and_what_followed_them_are_candidates():
    found = memories(clicks([[A, E], [C, D]] + [[B, B]] * 9))
    rows = replace(clicks([[B]] * 2), past=clicks([[], [A]]))
    assert found.reader(2)(rows).candidates.tolist() == [[B, D], [B, A]]
    assert found.reader(3)(rows).candidates[1].tolist() == [B, A, E]


def test_only_features_asked_for_are_read():
    sessions = random_clicks(0)
    reads = [
        memories(sessions, chosen).reader(8)(prefixes)
        for chosen, prefixes in ((SETTINGS, PREFIXES), (SETTINGS, replace(PREFIXES, past=None)))
    ]
    for one, other in zip(*reads, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=10)
@given(seeds)
def test_after_an_empty_past_the_other_features_are_those_without(seed):
    sessions, prefixes = random_clicks(seed), prefixes_of(random_clicks(seed + 1))
    without = memories(sessions, SETTINGS).reader(8)(prefixes)
    empty = replace(prefixes, past=Clicks.none(len(prefixes), 1))
    for rows in (prefixes, empty):
        found = memories(sessions).reader(8)(rows)
        np.testing.assert_array_equal(found.candidates, without.candidates)
        np.testing.assert_array_equal(found.features[..., : -len(PAST_NAMES)], without.features)
        np.testing.assert_array_equal(found.context[:, : -len(PAST_CONTEXT)], without.context)


def test_no_click_of_the_past_is_counted_again():
    """Only what leads from a past to its session is learned."""
    windows = windows_with_pasts(0)
    model = fitted(*windows, with_past=True)
    other = fitted(*((replace(rows, past=None), end) for rows, end in windows))
    states = [each.memories.state_dict() for each in (model, other)]
    assert {name.split(".")[0] for name in states[0].keys() - states[1].keys()} == {"pasts"}
    assert all(torch.equal(value, states[0][name]) for name, value in states[1].items())
    assert len(model.memories.memories["pasts"].table) > 0
