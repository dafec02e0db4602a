"""Sources of evidence: half-lives are settings, and a memory of one's own is a class and a line."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dayahead.config.loading import validated
from dayahead.config.memory import MemoryConfig
from dayahead.core.columns import N_RESERVED, UNITS
from dayahead.core.errors import ConfigError
from dayahead.memory.clicks import Clicks
from dayahead.memory.evidence import CountMemory, channels, middle, of
from dayahead.memory.memories import Memories
from dayahead.memory.settings import HalfLife
from dayahead.memory.table import DecayedTable
from support.memory_models import CONFIG, SETTINGS, SMALL, equal_states, fitted, window


class HourMemory(CountMemory):
    """Clicks by the hour of the day."""

    name = "example"  # in the saved state
    prior = 3.0
    names = ("hour.clicks",)

    def __init__(self, settings):
        self.table = DecayedTable((4.0,), is_live=settings.tick > 0)
        self.tables = {"counts": self.table}

    def add(self, growth, ages, elapsed):
        sessions = growth.sessions
        [clicks] = (growth.is_new & (sessions.items >= N_RESERVED)).nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.table.half_lives)
        worth = decay * sessions.worth_of(clicks)[:, None]
        self.table.add(_hours(sessions)[clicks], sessions.items[clicks], worth, elapsed)

    def lookups(self, prefixes, now):
        rows = _hours(prefixes)[prefixes.last][:, None]
        return [self.table.lookup(rows, np.ones((1, 1), np.float32), now)]


def _hours(sessions: Clicks):
    return sessions.times // UNITS["hour"] % 24


@pytest.fixture
def with_hours(monkeypatch):
    """Add `HourMemory` after all other sources, the network too."""

    class More(Memories):
        def _sources(self):
            return [*super()._sources(), HourMemory(self.settings)]

    monkeypatch.setattr("dayahead.memory.model.Memories", More)


def like_popularity(_positions, candidates):
    return -candidates.float()


@pytest.mark.parametrize("with_network", [False, True])
def test_a_memory_of_ones_own_is_learned_from_kept_and_explained(with_hours, with_network):
    network = like_popularity if with_network else None
    windows = [window(seed, seed) for seed in range(3)]
    model = fitted(*windows, network=network, with_network=with_network)
    assert model.features[-1] == "hour.clicks"
    assert model.weights()["hour.clicks"] != 0
    assert len(model.memories.memories["example"].table) > 0
    other = fitted(*windows[:2], network=network, with_network=with_network)
    other.fit(*windows[2], network)
    assert equal_states(model, other)
    before, _ = windows[2]
    [parts] = model.explain(before.take(np.array([0])), before.items[:1], np.arange(2, 14), network)
    assert parts["hour.clicks"] != 0


@pytest.mark.parametrize("change", [("name", "pairs"), ("names", ("own.is_last",))])
def test_names_are_not_shared(with_hours, monkeypatch, change):
    monkeypatch.setattr(HourMemory, *change)
    with pytest.raises(AssertionError, match="same name"):
        fitted(window(0, 0))


def test_a_networks_scores_are_at_their_name_wherever_it_stands(with_hours):
    model = fitted(window(0, 0), network=like_popularity, with_network=True)
    kept = model.replay.kept
    column = model.features.index("network.log_softmax")
    assert column == len(model.features) - 2
    assert torch.unique(kept.features[..., column][kept.is_candidate]).numel() > 2


def test_half_lives_name_the_features():
    config = replace(SMALL, pair_next_half_lives=(0.5, 3.0), category_half_lives=(1.0, 8.0))
    names = Memories(replace(SETTINGS, config=config)).features
    assert [name for name in names if "next" in name or "category" in name] == [
        "pair.next.0.5",
        "pair.next.3",
        *(f"category.{kind}.device.{each}" for kind in ("clicks", "next") for each in (1, 8)),
    ]


def test_any_half_lives_can_be_fitted():
    one = {name: (2.0,) for name in vars(SMALL) if name.endswith("half_lives")}
    assert one
    model = fitted(window(0, 0), window(1, 1), config=replace(SMALL, **one))
    assert all(np.isfinite(weight) for weight in model.weights().values())


@pytest.mark.parametrize("values", [[], [4.0, 1.0], [1.0, 1.0], [0.0], [-1.0], "4"])
def test_half_lives_must_be_ascending_and_above_0(values):
    settings = {**vars(CONFIG), "item_end_half_lives": values}
    with pytest.raises(ConfigError, match="item_end_half_lives"):
        validated(MemoryConfig, settings, "params.yaml")


def test_of_two_half_lives_in_the_middle_it_is_the_longer_one():
    lives = [HalfLife(f"{windows:g}", windows) for windows in (0.25, 1.0, 4.0)]
    of_kinds = channels(next=lives, end=lives[:2], first=lives[:1])
    assert [of(of_kinds, kind) for kind in ("next", "end", "first")] == [[0, 1, 2], [3, 4], [5]]
    assert [middle(of_kinds, kind) for kind in ("next", "end", "first")] == [1, 4, 5]


def test_half_lives_may_be_durations():
    config = replace(CONFIG, pair_next_half_lives=("15min", "1h"), neighbour_half_lives=("2h",))
    memories = Memories(replace(SETTINGS, config=config))
    assert memories.pairs.names[:2] == ("pair.next.15min", "pair.next.1h")
    assert memories.pairs.table.half_lives[:2].tolist() == [0.25, 1.0]  # of windows of an hour
    assert memories.memories["sessions"].half_lives.tolist() == [2.0]
    assert "neighbours.items.2h" in memories.features


def test_counts_with_durations_are_those_with_numbers():
    named = replace(SMALL, pair_next_half_lives=("15min", "1h", "4h", "16h"))
    models = [fitted(window(0, 0), window(1, 1), config=config) for config in (SMALL, named)]
    assert equal_states(*models)
