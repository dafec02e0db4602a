"""Small memory models and the windows they are fitted on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dayahead.config.params import load_params
from dayahead.memory.evidence import sums_of
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Moment
from dayahead.memory.model import MemoryModel
from dayahead.memory.settings import MemorySettings
from support.clicks import HOUR, random_clicks, with_pasts

MEMORY_WITH_GPT2 = {"model": {"architecture": "memory", "network": "gpt2"}}
N_ITEMS = 12
NOW = Moment(0)
SIZES = {"item_id": N_ITEMS, "device": 9}
CONFIG = load_params(Path(__file__).parents[2] / "params.yaml").memory
"""The settings that come with Dayahead."""
SMALL = replace(
    CONFIG,
    n_candidates=8,
    head_width=8,
    batch_size=16,
    min_steps=0,
    first_epochs=2,
    n_replayed=20,
)
SETTINGS = MemorySettings(
    config=SMALL, unit=HOUR, columns=("device",), attributes=("device",), seed=0
)


def counted(memory, prefixes, candidates, n, moment=NOW):
    """Counts of a memory at candidates below `n`, and their totals."""
    return sums_of(memory.lookups(prefixes, moment), candidates, n)


def after(memory, *windows):
    """Return a memory once it has counted windows of an hour each, from hour 0 on."""
    for end, sessions in enumerate(windows, start=1):
        memory.add(Growth.whole(sessions), np.maximum(end - sessions.times / HOUR, 0), 1.0)
    return memory


def channel_of(channels, kind, windows):
    """Index of the channel of a kind with this half-life."""
    return [(each.kind, each.half_life.windows) for each in channels].index((kind, windows))


def window(seed, position):
    """Sessions of the hour that starts at `position`, and its end."""
    return random_clicks(seed, n_items=N_ITEMS, start=position), (position + 1) * HOUR


def windows_with_pasts(seed, n=3):
    """Windows of sessions that have a past."""
    windows = (window(seed + i, i) for i in range(n))
    return [(with_pasts(sessions, seed, N_ITEMS), end) for sessions, end in windows]


def fitted(*windows, network=None, config=SMALL, **settings):
    """A model fitted on windows (sessions, end), one after another."""
    model = MemoryModel(replace(SETTINGS, config=config, **settings))
    model.grow(SIZES)
    for sessions, end in windows:
        model.fit(sessions, end, network)
    return model


def equal_states(model, other):
    """Whether two models hold the same tensors, bit for bit."""
    states = model.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value, states[1][name]) for name, value in states[0].items()
    )
