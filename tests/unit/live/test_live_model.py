"""A saved model that counts events: its state is that of the log, whenever this is delivered."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.live import live_model
from dayahead.live.event_log import Event
from dayahead.live.live_model import LiveModel
from dayahead.model.checkpoint import load_model
from support.live_windows import LIVE, events_of, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.typed_windows import add_types
from support.window_folders import markov_days, write_window_folder

MINUTE = 60_000_000
TICK = 30 * MINUTE
STUDY = merge_sections(LIVE, training={"fit_last": False}, model={"features": ("category",)})


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    days = markov_days(n_days=3, sessions_per_day=20, n_items=30)
    folder = write_window_folder(tmp_path_factory.mktemp("windows"), days, features=True)
    return spread_sessions(folder)


@pytest.fixture(scope="module")
def folder(windows, tmp_path_factory):
    """A model that is fitted on two days."""
    return train_study(windows, tmp_path_factory.mktemp("study"), STUDY) / "models"


def fresh(folder):
    return LiveModel(load_model(folder, to_fit=False))


def event(name, item, time, arrived=None, category=0):
    """A click of the session that the first letter names; positions are given on delivery."""
    fields = {"item_id": item, "category": category}
    return Event(name, name[0], None, time, fields, 0, time if arrived is None else arrived)


def microseconds(text):
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


def day_of(windows):
    """The third day's clicks, each of which arrives when it happens."""
    found = []
    for each in events_of(windows, 2):
        time = microseconds(each["event_time"])
        fields = {name: each[name] for name in ("item_id", "category")}
        found.append(Event(each["event_id"], each["session_id"], None, time, fields, 0, time))
    return found


def counted(folder, events, deliveries):
    """Deliver events up to some numbers, counting at the ticks given after each of them."""
    model, start = fresh(folder), 0
    for end, until in deliveries:
        part = events[start:end]
        model.deliver([each._replace(position=start + n + 1) for n, each in enumerate(part)])
        model.advance(until)
        start = end
    return model


def state(model):
    stored = model.stored()
    arrays = {name: each.numpy() for name, each in stored.model.state_dict().items()}
    values = {name: table["value"].to_pylist() for name, table in stored.vocabularies.items()}
    return arrays, values, stored.candidates.tolist(), model.now


def assert_equal_states(one, other):
    (arrays, *rest), (others, *rest_of_other) = state(one), state(other)
    assert rest == rest_of_other
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert np.array_equal(array, others[name]), name


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_state_does_not_depend_on_when_clicks_are_delivered(windows, folder, data):
    """Late, early and new ones too: a log that is replayed gives the same bytes."""
    dice = np.random.default_rng(data.draw(st.integers(0, 99)))
    events = day_of(windows)
    start = fresh(folder).start
    # Some arrive up to two hours late, some a minute early, and some are of new items.
    delays = dice.choice([0, 0, 0, 90 * MINUTE, -1 * MINUTE], len(events))
    items = [int(dice.integers(60, 70)) if dice.random() < 0.2 else None for _ in events]
    events = [
        each._replace(
            arrived=max(start, each.time + int(delay)),
            fields=each.fields if item is None else {**each.fields, "item_id": item},
        )
        for each, delay, item in zip(events, delays, items, strict=True)
    ]
    events.sort(key=lambda each: each.arrived)
    end = start + 24 * 60 * MINUTE
    by_tick = [
        (sum(each.arrived < until for each in events), until)
        for until in range(start + TICK, end + 1, TICK)
    ]
    at_once = [(len(events), end)]
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(by_tick))), max_size=5)))
    in_parts = [by_tick[n] for n in chosen] + at_once
    expected = counted(folder, events, by_tick + at_once)
    assert_equal_states(expected, counted(folder, events, at_once))
    assert_equal_states(expected, counted(folder, events, in_parts))
    assert expected.n_new_items > 0


def test_a_click_counts_at_the_first_tick_after_it_has_happened_and_arrived(folder):
    model = fresh(folder)
    t = model.start
    late = event("a2", 91, t + 29 * MINUTE, arrived=t + 31 * MINUTE)
    early = event("a4", 93, t + 61 * MINUTE, arrived=t + 59 * MINUTE)
    model.deliver([event("a1", 90, t + 20 * MINUTE), late, event("a3", 92, t + 45 * MINUTE), early])
    found = [(model.advance(t + n * TICK), counted_of(model)) for n in range(4)]
    # One click is none: sessions count from two clicks on.
    assert found == [(0, []), (1, []), (3, [90, 91, 92]), (0, [90, 91, 92, 93])]


def counted_of(model):
    """Raw ids of new items that are counted."""
    values = model.stored().vocabularies["item_id"]["value"].to_pylist()
    return [
        value for value, is_known in zip(values, model.is_known[2:], strict=True)
        if is_known and value >= 90
    ]  # fmt: skip


def test_clicks_before_the_end_of_the_last_window_do_not_count_again(folder):
    model = fresh(folder)
    before = state(fresh(folder))[0]
    t = model.start
    model.deliver([event("a1", 90, t - 2 * MINUTE, arrived=t), event("a2", 91, t - 1, arrived=t)])
    model.advance(t)
    after = state(model)[0]
    assert all(np.array_equal(array, after[name]) for name, array in before.items())
    assert [each.id for each in model.sessions.events_of("a")] == ["a1", "a2"]


def test_a_session_that_is_running_at_midnight_goes_on(folder):
    """Its clicks of the day before are those that the model has counted."""
    stored = load_model(folder, to_fit=False)
    running = stored.model.counter.running
    late = stored.config.end - MINUTE
    one = torch.ones(1, dtype=torch.int64)
    items = stored.vocabularies["item_id"]["value"].to_pylist()
    clicks = {"keys": one * 5, "times": one * late, "items": one * 4, "pasts": one * 0}
    clicks["categories"] = torch.zeros((1, 1), dtype=torch.int64)
    clicks["worth"] = torch.ones(1, dtype=torch.float64)
    running.load_state_dict(
        {
            # A click after the end, as of `overrun: keep`: the log brings it again.
            **{f"pending.{name}": value for name, value in clicks.items()},
            **{f"counted.{name}": value for name, value in clicks.items()},
            "offsets": torch.tensor([0, 1]),
            "n_counted": one,
            "ids": one * 9,
            "n_keys": one * 6,
            "n_ids": one * 9,
        }
    )
    model = LiveModel(stored)
    t = model.start
    model.deliver([event("a1", items[2], late, arrived=t), event("b1", items[3], late, arrived=t)])
    model.deliver([event("a2", 90, t + 1), event("b2", 91, t + 1)])
    model.advance(t + TICK)
    # The session known goes on under its key; the other one has a single click so far.
    assert running.counted.keys.tolist() == [5, 5, 7]
    assert counted_of(model) == [90]


def test_new_values_are_numbered_by_the_time_of_their_first_click(folder):
    model = fresh(folder)
    t = model.start
    # The second click of item 91 is the first that arrives.
    arrived = [(91, t + 3), (90, t + 2), (91, t + 1), (92, t)]
    model.deliver([event("a", item, time, arrived=t + 4) for item, time in arrived])
    model.advance(t + TICK)
    assert model.stored().vocabularies["item_id"]["value"].to_pylist()[-3:] == [92, 91, 90]


def test_new_values_have_a_limit(folder, monkeypatch):
    monkeypatch.setattr(live_model, "MOST_NEW", 2)
    model = fresh(folder)
    t = model.start
    model.deliver([event("a1", 90, t), event("a2", 91, t + 1), event("a3", 92, t + 2)])
    model.deliver([event("a4", 91, t + 3, category=8), event("a5", None, t + 4, category="x")])
    model.advance(t + TICK)
    assert model.n_new_items == 2
    assert counted_of(model) == [90, 91]
    assert model.stored().vocabularies["category"]["value"].to_pylist()[-1] == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"live": {"tick": 0}}, r"model \(memory, live.tick 0\) does not count clicks"),
        ({"model": {"architecture": "popularity", "features": ()}}, "does not count clicks"),
    ],
)
def test_a_model_that_does_not_count_is_refused(windows, tmp_path, change, message):
    out = train_study(windows, tmp_path, merge_sections(STUDY, **change))
    with pytest.raises(ConfigError, match=message):
        fresh(out / "models")


def test_a_model_that_reads_the_past_is_refused(folder):
    stored = load_model(folder, to_fit=False)
    reads_past = replace(stored.config.model, past_length=3)
    with pytest.raises(ConfigError, match=r"model\.past_length"):
        LiveModel(replace(stored, config=replace(stored.config, model=reads_past)))


@pytest.mark.long
def test_clicks_count_what_their_type_is_worth(windows, tmp_path):
    """Whether the model reads the types or not, in any order; a click without one counts 1."""
    typed = tmp_path / "windows"
    shutil.copytree(windows, typed)
    add_types(typed)
    sections = merge_sections(STUDY, events={"weights": {"purchase": 5.0}})
    folder = train_study(typed, tmp_path / "study", sections) / "models"
    start = fresh(folder).start

    def popularity_after(**types):
        events = [event(name, item, start + n * MINUTE) for n, (name, item) in enumerate(CLICKS)]
        events = [
            each._replace(fields=each.fields | {"event_type": types[each.id]})
            if each.id in types
            else each
            for each in events
        ]
        deliveries = [(len(events), start + 24 * 60 * MINUTE)]
        model, other = (counted(folder, each, deliveries) for each in (events, events[::-1]))
        assert_equal_states(model, other)
        return dict(
            zip(items_of(model), model.popularity_of(model.stored().candidates), strict=True)
        )

    plain, bought = popularity_after(), popularity_after(a2="purchase")
    assert plain == popularity_after(a2="view") == popularity_after(a2="never seen", a1=None)
    assert {item for item in plain if bought[item] > plain[item]} == {61}


def items_of(model):
    stored = model.stored()
    return [
        stored.vocabularies["item_id"]["value"][index - 2].as_py()
        for index in stored.candidates.tolist()
    ]


CLICKS = [("a1", 60), ("a2", 61), ("b1", 60), ("b2", 62)]
"""Of new items."""
