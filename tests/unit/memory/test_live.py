"""A model that counts within a window: its state at a tick is that of the clicks before it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dayahead.memory.clicks import Clicks
from dayahead.memory.memories import Memories
from dayahead.memory.model import MemoryModel
from support.clicks import (
    HOUR,
    clicks,
    positions_of,
    prefixes_of,
    random_clicks,
    seeds,
    sessions_of,
    with_pasts,
)
from support.memory_models import N_ITEMS, SETTINGS, SIZES, SMALL, equal_states, window

A, B, C = 2, 3, 4
MINUTE = HOUR // 60
LIVE = {"tick": 10 * MINUTE, "gap": 15 * MINUTE, "min_length": 1}
EVERY = np.arange(2, 2 + N_ITEMS)
PREFIXES = prefixes_of(random_clicks(99, start=2))


def live_model(*windows, config=SMALL, sizes=SIZES, **more):
    """A model with ticks that is fitted on windows (sessions, end), one after another."""
    model = MemoryModel(replace(SETTINGS, config=config, **{**LIVE, **more}))
    model.grow(sizes)
    for sessions, end in windows:
        model.fit(sessions, end)
    return model


def before(sessions, time):
    """Cut sessions at a time."""
    rows = [
        [click for click in row if round(click[1] * HOUR) < time] for row in sessions_of(sessions)
    ]
    items, hours, values = (
        [[click[field] for click in row] for row in rows if row] for field in range(3)
    )
    return clicks(items, hours, [[tuple(value) for value in row] for row in values])


def scores_at(model, sessions, end, until):
    """Scores of PREFIXES at a tick of the window that follows."""
    model.open(sessions, end)
    model.advance(until)
    found = model.scores(PREFIXES, EVERY)
    model.rewind()
    return found


def test_sessions_that_have_ended_are_counted_as_in_a_whole_window():
    sessions, _ = window(0, 0)
    whole = Memories(SETTINGS)
    whole.grow(SIZES)
    whole.add([sessions.take(sessions.order())], 2 * HOUR)
    # With a single count at the end, of sessions that have no gap.
    model = live_model(tick=2 * HOUR, gap=HOUR)
    model.open(sessions, 2 * HOUR)
    model.advance(2 * HOUR)
    assert model.memories.counted_at == 2 * HOUR
    for name, wanted in whole.state_dict().items():
        if name != "sessions.ids":
            assert torch.equal(model.memories.state_dict()[name], wanted), name


def test_counts_of_many_ticks_are_those_of_one():
    sessions, _ = window(0, 0)
    often, once = live_model(gap=HOUR), live_model(tick=2 * HOUR, gap=HOUR)
    for model in (often, once):
        model.open(sessions, 2 * HOUR)
        model.advance(2 * HOUR)
    for name in ("first", "latest"):
        found = [getattr(model.memories.items, name) for model in (often, once)]
        assert np.array_equal(*found)
    # Decayed in several steps, kept in float32, and without cells that were small by then.
    counts = [model.memories.items.counts for model in (often, once)]
    assert counts[0] == pytest.approx(counts[1], rel=1e-5)
    kept = []
    for model in (often, once):
        values = model.memories.pairs.table.state_dict()["values"].numpy()
        kept.append(dict(zip(cells(model), values, strict=True)))
    assert {*kept[0]} <= {*kept[1]}
    for cell, values in kept[0].items():
        assert values == pytest.approx(kept[1][cell], rel=1e-4)
    found = (model.memories.memories["sessions"].times.tolist() for model in (often, once))
    assert len({*map(tuple, found)}) == 1


def cells(model):
    state = model.memories.pairs.table.state_dict()
    return zip(state["rows"].tolist(), state["columns"].tolist(), strict=True)


@settings(max_examples=10)
@given(seeds)
def test_no_score_depends_on_clicks_at_or_after_its_tick(seed):
    model = live_model(window(seed, 0))
    sessions, end = window(seed + 1, 1)
    until = HOUR + 30 * MINUTE
    found = scores_at(model, sessions, end, until)
    earlier = before(sessions, until)
    assert torch.equal(found, scores_at(model, earlier, end, until))
    others = random_clicks(seed + 2, start=1.5)  # other sessions after it
    both = Clicks.cat([earlier, others], 1)
    assert torch.equal(found, scores_at(model, both, end, until))
    dice = np.random.default_rng(seed)
    changed = np.where(
        sessions.times < until, sessions.items, dice.integers(2, 14, len(sessions.items))
    )
    assert torch.equal(found, scores_at(model, replace(sessions, items=changed), end, until))
    shuffled = sessions.take(dice.permutation(len(sessions)))
    assert torch.equal(found, scores_at(model, shuffled, end, until))
    # A click before it does change them.
    assert not torch.equal(
        found, scores_at(model, before(sessions, until - 10 * MINUTE), end, until)
    )


@pytest.mark.long
@settings(max_examples=5)
@given(seeds)
def test_a_window_that_was_followed_is_fitted_as_one_that_was_not(seed):
    windows = [window(seed + i, i) for i in range(3)]
    alone, followed = live_model(*windows), live_model(windows[0])
    for sessions, end in windows[1:]:
        followed.open(sessions, end)
        for until in range(end - HOUR, end - 5 * MINUTE, 10 * MINUTE):
            followed.advance(until)
            followed.scores(PREFIXES, EVERY)
        followed.fit(sessions, end)
    assert equal_states(alone, followed)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(seeds)
@pytest.mark.parametrize("with_past", [False, True])
@pytest.mark.parametrize("n_asked", [N_ITEMS, 5])
def test_examples_that_were_scored_are_those_that_the_fit_reads(n_asked, with_past, seed):
    """Some items of the window are no candidates of what is scored: they are the head's still."""
    sessions, end = window(seed, 1)
    sessions = with_pasts(sessions, seed) if with_past else sessions
    alone, scored = (live_model(window(0, 0), with_past=with_past) for _ in range(2))
    alone.fit(sessions, end)
    scored.open(sessions, end)
    positions = positions_of(sessions)
    ticks = sessions.times_before(positions) // LIVE["tick"] * LIVE["tick"]
    for tick in np.unique(ticks):
        scored.advance(int(tick))
        [asked] = (ticks == tick).nonzero()
        seen = scored.memories.counted_items
        scored.scores(sessions.prefixes(positions.take(asked)), np.union1d(seen, EVERY[:n_asked]))
    scored.fit(sessions, end)
    assert equal_states(alone, scored)


def test_what_an_evaluation_has_read_is_not_read_again(monkeypatch):
    sessions, end = window(3, 1)
    model = live_model(window(0, 0))
    model.open(sessions, end)
    tick = int(model.window.next_tick())
    model.advance(tick)
    read, original = [], model.memories._read
    monkeypatch.setattr(model.memories, "_read", lambda *a: read.append(len(a[0])) or original(*a))
    awaited = model.window.awaited.prefixes
    model.scores(awaited, EVERY)
    model.advance(end)
    assert read[:2] == [len(awaited), 0]
    assert len(awaited) > 0


def test_rewinding_returns_to_the_fit():
    first, few = (random_clicks(0, n_items=9), HOUR), {"item_id": 9, "device": 9}
    model, same = (live_model(first, sizes=few) for _ in range(2))
    expected = model.scores(PREFIXES, EVERY[:9])
    sessions, end = window(1, 1)
    model.open(sessions, end, sizes=SIZES)
    model.advance(end)
    model.rewind()
    assert equal_states(model, same)
    assert torch.equal(model.scores(PREFIXES, EVERY[:9]), expected)
    model.rewind()
    assert equal_states(model, same)


def test_a_session_goes_on_in_the_next_window():
    sessions = clicks([[A, B, C]], [[0.9, 0.95, 1.05]])
    model = live_model((sessions, HOUR))
    table = model.memories.pairs.table
    assert {*cells(model)} == {(A, B), (B, A)}
    model.open(clicks([]), 2 * HOUR)
    model.advance(HOUR + 10 * MINUTE)
    assert (B, C) in {*cells(model)}
    assert len(table) == 6
    assert model.memories.memories["sessions"].items.tolist() == [A, B, C]


def test_an_item_is_known_and_recommended_from_the_next_tick_on():
    few = {"item_id": 3, "device": 9}
    new = 2 + few["item_id"]  # the first item that the second window adds
    model = live_model((random_clicks(0, n_items=3), HOUR), sizes=few)
    model.grow(SIZES)
    model.open(clicks([[new, A]] * 3, [[1 + 3 / 60, 1 + 4 / 60]] * 3), 2 * HOUR)
    prefix = clicks([[A]], [[1.05]])
    model.advance(HOUR)
    assert new not in model.memories.counted_items
    assert new not in model.memories.reader(8)(prefix).candidates
    model.advance(HOUR + 10 * MINUTE)
    assert new in model.memories.counted_items
    assert new in model.memories.reader(8)(prefix).candidates


def test_a_new_value_is_unknown_until_it_is_counted():
    model = live_model(window(0, 0), sizes={"item_id": N_ITEMS, "device": 1})
    model.grow(SIZES)
    prefix = clicks([[A]], [[1.2]], [[(5,)]])
    unknown = replace(prefix, categories=np.array([[1]]))
    model.open(clicks([[A, B]], [[1.01, 1.02]], [[(5,), (5,)]]), 2 * HOUR)
    found = []
    for until in (HOUR, HOUR + 10 * MINUTE):
        model.advance(until)
        found.append([model.memories.reader(8)(each).context for each in (prefix, unknown)])
    assert np.array_equal(*found[0])
    assert not np.array_equal(*found[1])


def test_examples_are_read_at_their_tick():
    sessions, end = window(1, 1)
    model = live_model(window(0, 0))
    model.head.n_standardised.zero_()  # examples stay as they are read
    opened = model.open(sessions, end)
    times = opened.learned.times_before(opened.positions)
    assert (opened.ticks == times // (10 * MINUTE) * 10 * MINUTE).all()
    assert (np.diff(opened.ticks) >= 0).all()
    assert len(times) == len(positions_of(sessions).rows)
    model.advance(HOUR + 20 * MINUTE)
    assert opened.n_read == (times < HOUR + 30 * MINUTE).sum()
    # Those of one tick are what the memories of the clicks before it say.
    model.advance(HOUR + 29 * MINUTE)  # they are read before the memories go on
    other = live_model(window(0, 0))
    other.open(before(sessions, HOUR + 20 * MINUTE), end)
    other.advance(HOUR + 20 * MINUTE)
    due = np.flatnonzero(opened.ticks == HOUR + 20 * MINUTE)
    positions = opened.positions.take(due)
    found = other.memories.reader(SMALL.n_candidates)(opened.learned.prefixes(positions))
    targets = opened.learned.following(positions)
    is_learned = (found.candidates == targets[:, None]).any(1)
    assert np.array_equal(opened.examples[-1].features.numpy(), found.features[is_learned])


def test_no_click_after_the_window_is_an_example():
    sessions = clicks([[A, B, C], [B, A, C]], [[0.9, 1.05, 1.1], [0.9, 0.95, 1.05]])
    opened = live_model(window(0, 0)).open(sessions, HOUR)
    assert opened.learned.following(opened.positions).tolist() == [A]


def test_how_many_items_the_window_brings_changes_no_score():
    found = []
    for n_items in (N_ITEMS, N_ITEMS + 50):
        model = live_model(window(0, 0))
        sessions, end = window(1, 1)
        model.open(sessions, end, sizes={"item_id": n_items, "device": 9})
        model.advance(HOUR + 30 * MINUTE)
        found.append(model.scores(PREFIXES, EVERY))
        assert model.memories.known.popularity[: N_ITEMS + 2].sum() == pytest.approx(1)
    assert torch.equal(*found)


def test_the_clock_does_not_go_back():
    model = live_model(window(0, 0))
    late = clicks([[A, B]], [[0.2, 0.3]])  # of the hour before
    model.open(late, 2 * HOUR)
    before = model.memories.counted_at
    model.advance(HOUR - 10 * MINUTE)
    assert model.memories.now >= before
    model.advance(HOUR + 10 * MINUTE)
    assert (A, B) in {*cells(model)}
    assert np.isfinite(model.memories.known.logs).all()


def test_opening_again_starts_anew():
    one, other = live_model(window(0, 0)), live_model(window(0, 0))
    sessions, end = window(1, 1)
    one.open(random_clicks(7, start=1), end)
    one.advance(HOUR + 30 * MINUTE)
    for model in (one, other):
        model.open(sessions, end)
        model.fit(sessions, end)
    assert equal_states(one, other)


def network(positions, candidates):
    """A network of the items below 6 that is only asked for these."""
    assert (candidates < 6).all()
    return torch.sin(candidates * (1.0 + torch.from_numpy(positions.rows))[:, None])


def test_items_that_the_network_does_not_know_are_flagged():
    few = {"item_id": 4, "device": 9}
    model = MemoryModel(replace(SETTINGS, with_network=True, **LIVE))
    model.grow(few)
    model.fit(random_clicks(0, n_items=4), HOUR, network)
    model.grow(SIZES)
    model.head.n_standardised.zero_()  # examples stay as they are read
    sessions, end = window(1, 1)
    opened = model.open(sessions, end, network)
    model.advance(HOUR + 50 * MINUTE)
    found = torch.cat([each.features for each in opened.examples])
    is_candidate = torch.cat([each.is_candidate for each in opened.examples])
    candidates = torch.from_numpy(np.concatenate([each for _, each in opened.predicted]))
    is_new = candidates >= 6
    assert is_new.any()
    column = model.features.index("network.log_softmax")
    assert torch.equal(found[..., model.features.index("network.is_new")] > 0, is_new)
    scores = found[..., column]
    known = (scores * (is_candidate & ~is_new)).sum(1) / (is_candidate & ~is_new).sum(1).clamp(
        min=1
    )
    assert torch.allclose(scores[is_new], known[:, None].expand_as(scores)[is_new])
    # Nor is it asked for them where it learns along with the head.
    model.fit(sessions, end, network, update=lambda *_: None)


@pytest.mark.slow
def test_a_model_of_2000_windows_is_as_large_as_one_of_1000():
    """Items come and go, and each keeps sessions that can be found by it: 20 at most."""
    n_items = 200

    def drifting(number):
        sessions = random_clicks(number, n_sessions=20, n_items=40, start=number)
        known = sessions.items >= A
        moved = (sessions.items - A + number) % n_items + A
        return replace(sessions, items=np.where(known, moved, 1))

    config = replace(SMALL, n_latest=20, n_earlier=20)
    model = live_model(config=config, sizes={"item_id": n_items, "device": 9}, tick=20 * MINUTE)
    sizes = []
    for number in range(2000):
        model.fit(drifting(number), (number + 1) * HOUR)
        sizes.append(sum(each.nbytes for each in model.state_dict().values()))
    # An item comes again after 200 windows.
    assert np.mean(sizes[1800:]) == pytest.approx(np.mean(sizes[800:1000]), rel=0.01)
