"""Running sessions: what has happened by each tick, however the clicks were delivered."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.memory.running import NOTHING_WAITS, RunningSessions
from support.clicks import HOUR, clicks, random_clicks, seeds, sessions_of, with_pasts
from support.memory_models import SETTINGS

A, B, C = 2, 3, 4
MINUTE = HOUR // 60
LIVE = replace(SETTINGS, tick=10 * MINUTE, gap=30 * MINUTE, min_length=2)


def running(*parts, settings=LIVE):
    found = RunningSessions(settings)
    for sessions in parts:
        found.deliver(sessions)
    return found


def grown(found, minutes):
    """What has happened by some minutes: (items so far, clicks counted, whether ended)."""
    growth = found.advance(minutes * MINUTE)
    items = [[item for item, *_ in row] for row in sessions_of(growth.sessions)]
    return [*zip(items, growth.n_counted.tolist(), growth.is_ended.tolist(), strict=True)]


def at(*minutes):
    return tuple(minute / 60 for minute in minutes)


def test_a_session_grows_click_by_click_and_ends_after_the_gap():
    found = running(clicks([[A, B, C]], [at(1, 5, 12)]))
    assert grown(found, 10) == [([A, B], 0, False)]
    assert grown(found, 20) == [([A, B, C], 2, False)]
    assert grown(found, 40) == []
    assert grown(found, 42) == [([A, B, C], 3, True)]
    assert grown(found, 99) == []


def test_a_click_at_a_tick_counts_from_the_next_one_on():
    found = running(clicks([[A, B]], [at(1, 10)]))
    assert grown(found, 10) == []
    assert grown(found, 20) == [([A, B], 0, False)]


def test_a_session_counts_once_it_is_long_enough():
    found = running(clicks([[A, B], [C]], [at(1, 15), at(2)]))
    assert grown(found, 10) == []
    assert grown(found, 20) == [([A, B], 0, False)]
    assert grown(found, 999) == [([A, B], 2, True)]


def test_after_the_gap_it_is_another_session():
    found = running(clicks([[A, B, B, C]], [at(1, 2, 32, 33)]))
    first = found.advance(40 * MINUTE)
    assert [[item for item, *_ in row] for row in sessions_of(first.sessions)] == [[A, B], [B, C]]
    assert first.is_ended.tolist() == [True, False]
    last = found.advance(999 * MINUTE)
    assert last.ids.tolist() == first.ids[1:].tolist()
    assert last.n_counted.tolist() == [2]
    # Also where the gap lies between two counts.
    found = running(clicks([[A, B, B, C]], [at(1, 2, 92, 93)]))
    assert grown(found, 30) == [([A, B], 0, False)]
    assert grown(found, 100) == [([A, B], 2, True), ([B, C], 0, False)]


def test_the_next_time_is_the_first_tick_with_something_to_count():
    found = running(clicks([[A, B]], [at(1, 10)]))
    assert found.next_time() == 10 * MINUTE
    found.advance(10 * MINUTE)
    assert found.next_time() == 20 * MINUTE
    found.advance(20 * MINUTE)
    assert found.next_time() == 40 * MINUTE
    found.advance(40 * MINUTE)
    assert found.next_time() == NOTHING_WAITS
    assert running().next_time() == NOTHING_WAITS


def test_the_last_item_of_the_past_comes_with_the_session():
    sessions = replace(clicks([[A, B], [C, A]], [at(1, 2), at(3, 4)]), past=clicks([[], [A, B]]))
    growth = running(sessions, settings=replace(LIVE, with_past=True)).advance(10 * MINUTE)
    assert [[item for item, *_ in row] for row in sessions_of(growth.sessions.earlier)] == [[], [B]]


def by_hand(sessions, settings, until):
    """Pieces of sessions as of a time: clicks before it, and whether they have ended by then."""
    found = []
    for row in sessions_of(sessions):
        pieces, last = [], None
        for item, hour, _ in row:
            if round(hour * HOUR) >= until:
                break
            if last is None or round((hour - last) * HOUR) >= settings.gap:
                pieces.append([])
            pieces[-1].append((item, hour))
            last = hour
        for number, piece in enumerate(pieces):
            idle = round(piece[-1][1] * HOUR) + settings.gap <= until
            if len(piece) >= settings.min_length:
                found.append((piece, number < len(pieces) - 1 or idle))
    return sorted(found)


@given(seeds, st.lists(st.integers(1, 24), min_size=1, max_size=6), st.integers(1, 3))
def test_all_growth_together_is_what_has_happened(seed, steps, min_length):
    settings = replace(LIVE, gap=12 * MINUTE, min_length=min_length)
    sessions = random_clicks(seed, n_sessions=12)
    found = running(sessions, settings=settings)
    states = {}
    for until in np.cumsum(steps) * 5 * MINUTE:
        growth = found.advance(int(until))
        rows = [[(item, hour) for item, hour, _ in row] for row in sessions_of(growth.sessions)]
        for number, row, n_counted, is_ended in zip(
            growth.ids.tolist(), rows, growth.n_counted.tolist(), growth.is_ended.tolist(),
            strict=True,
        ):  # fmt: skip
            before, was_ended = states.get(number, ([], False))
            assert row[:n_counted] == before
            assert not was_ended
            assert is_ended or len(row) > n_counted
            states[number] = row, is_ended
        assert sorted(states.values()) == by_hand(sessions, settings, until)


@pytest.mark.long
@given(seeds, st.integers(1, 11))
def test_neither_order_nor_delivery_matters(seed, cut):
    sessions = with_pasts(random_clicks(seed, n_sessions=12), seed)
    shuffled = np.random.default_rng(seed).permutation(12)
    settings = replace(LIVE, with_past=True)
    one = running(sessions, settings=settings)
    parts = [sessions.take(rows) for rows in np.split(shuffled, [cut])]
    other = running(*parts, settings=settings)
    for until in range(0, 100, 10):
        growth, same = (each.advance(until * MINUTE) for each in (one, other))
        assert [*sessions_of(growth.sessions)] == [*sessions_of(same.sessions)]
        for name in ("n_counted", "is_ended", "ids"):
            assert getattr(growth, name).tolist() == getattr(same, name).tolist()


def test_a_state_goes_on_where_it_was_taken():
    one = running(with_pasts(random_clicks(1), 1))
    one.advance(20 * MINUTE)
    other = RunningSessions(LIVE)
    other.load_state_dict(one.state_dict())
    for until in (30, 40, 99):
        assert grown(one, until) == grown(other, until)


@pytest.mark.parametrize("until", [0, 60])
def test_without_clicks_nothing_happens(until):
    assert grown(running(), until) == []
    assert grown(running(clicks([])), until) == []
