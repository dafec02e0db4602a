"""Names of evidence that people read."""

from dataclasses import replace

import pytest

from dayahead.memory.memories import Memories
from dayahead.outputs.evidence_names import plain_name, plain_parts
from support.memory_models import SETTINGS


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        ("pair.next.4", "often clicked right after (half-life 4 windows)"),
        ("pair.next.1", "often clicked right after (half-life 1 window)"),
        ("neighbours.sharp.0.25", "in the most similar sessions (half-life 0.25 windows)"),
        ("item.clicks.1e+06", "popular (half-life 1e+06 windows)"),
        ("item.later.15min", "popular after the first click (half-life 15min)"),
        ("category.next.b.c.4h", "often clicked right after, at this b.c (half-life 4h)"),
        ("category.clicks.size.2.5", "popular after this size (half-life 2.5 windows)"),
        ("attribute.colour.share", "same colour as the session's clicks"),
        ("own.is_last", "the session's last click"),
        ("weather.rain.4", "weather.rain.4"),
    ],
)  # fmt: skip
def test_features_have_plain_names(feature, name):
    assert plain_name(feature) == name


@pytest.mark.parametrize("tick", [0, 1])
def test_every_feature_of_the_memories_has_one(tick):
    settings = replace(SETTINGS, with_network=True, with_past=True, tick=tick, vectors=("text",))
    features = Memories(settings).features
    without = [feature for feature in features if plain_name(feature) == feature]
    assert without == [], "without a plain name in outputs/evidence_names.py"
    names = {plain_name(feature) for feature in features}
    assert len(names) == len(features)
    assert not names & {*features}


def test_half_lives_of_a_kind_are_added_up_and_the_strongest_comes_first():
    parts = {"pair.next.4": 1.0, "own.is_known": -2.0, "pair.next.16": 1.5, "other.4": 0.25}
    assert [*plain_parts(parts).items()] == [
        ("often clicked right after", 2.5), ("in the session already", -2.0), ("other.4", 0.25),
    ]  # fmt: skip
