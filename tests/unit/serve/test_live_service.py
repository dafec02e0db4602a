"""A service that counts clicks as they come answers as evaluation ranks, tick by tick."""

from datetime import timedelta
from functools import cache

import pyarrow.parquet as pq
import pytest

from dayahead.core.columns import SESSION_ID
from dayahead.windows.folder import WindowFolder
from support.listed_items import Row, add_items
from support.live_services import live_client
from support.live_windows import LIVE, WITH_GPT2, events_of, spread_sessions
from support.redis_servers import running_redis
from support.tiny_settings import merge_sections, train_study
from support.window_folders import START, day, markov_days, write_window_folder

TOP_K = 12
STUDY = {
    "evaluation": {"split": "all", "positions": "all", "predictions": TOP_K},
    "training": {"fit_last": False},
}
KINDS = {
    "memory": LIVE,
    "category": merge_sections(LIVE, model={"features": ("category",)}),
    "gpt2": WITH_GPT2,
    "items": merge_sections(
        LIVE, model={"features": ("category",)}, evaluation={"candidates": "known"}
    ),
    "gpt2 with features": merge_sections(WITH_GPT2, model={"features": ("category", "price")}),
}


def days():
    *earlier, last = markov_days(n_days=3, sessions_per_day=20, n_items=30)
    # New items, one of them only in a session of its own.
    last = [[*row[:2], 40 + n % 3, *row[2:]] for n, row in enumerate(last)] + [[50, 51, 50, 51]]
    return [*earlier, last]


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    return spread_sessions(write_window_folder(folder, days(), features=True))


@pytest.fixture(scope="module")
def with_items(tmp_path_factory):
    """The same with a table of items, which lists the new ones from the first day on."""
    folder = tmp_path_factory.mktemp("items")
    every = sorted({item for sessions in days() for session in sessions for item in session})
    spread_sessions(write_window_folder(folder, days(), features=True, listed={0: every}))
    noon = START + timedelta(days=2, hours=12)
    rows = [
        Row(item, (1.0, item / 30, 0.0), category=item % 3 + 2, end=noon if item == 5 else None)
        for item in WindowFolder(folder).vocabulary("item_id")["value"].to_pylist()
    ]
    return add_items(folder, rows)


@pytest.fixture(scope="module")
def study(windows, with_items, tmp_path_factory):
    """Folder of a study whose models/ are fitted on two days, and evaluated on the third."""

    @cache
    def run(kind):
        folder = tmp_path_factory.mktemp(kind)
        data = with_items if kind == "items" else windows
        return train_study(data, folder, merge_sections(KINDS[kind], **STUDY))

    return run


def predicted(out):
    """Items and scores of each target's prefix."""
    table = pq.read_table(out / "results" / "predictions" / f"{day(2)}.parquet")
    rows = zip(
        *(table[name].to_pylist() for name in (SESSION_ID, "position", "items", "scores")),
        strict=True,
    )
    return {(name, position): (items, scores) for name, position, items, scores in rows}


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("memory", "gpt2") else pytest.mark.slow)
        for kind in KINDS
    ],
)
def test_a_replayed_day_is_answered_as_it_was_evaluated(windows, study, tmp_path, kind):
    out = study(kind)
    expected = predicted(out)
    n_clicks, n_asked = {}, 0
    with live_client(out / "models", tmp_path / "events.sqlite") as live:
        for event in events_of(windows, 2):
            assert live.send(event)[1]["accepted"] == 1
            session = event["session_id"]
            n_clicks[session] = n_clicks.get(session, 0) + 1
            if (session, n_clicks[session]) not in expected:
                continue
            n_asked += 1
            found = live.items(session, top_k=TOP_K, cold_start="model")
            items, scores = expected[session, n_clicks[session]]
            assert [item for item, _ in found] == items, (session, event)
            assert [score for _, score in found] == pytest.approx(scores, abs=1e-5)
    assert n_asked == len(expected) > 40


@pytest.mark.long
def test_services_behind_one_stream_answer_alike(windows, study, tmp_path):
    """At every tick, whichever of them takes the events; so does one that starts later."""
    models, events = study("memory") / "models", events_of(windows, 2)[:40]
    with running_redis(tmp_path) as (url, _), live_client(models, url) as one:
        with live_client(models, url) as other:
            for n, event in enumerate(events):
                taken_by, asked = (one, other) if n % 3 else (other, one)
                assert taken_by.send(event)[1]["accepted"] == 1
                assert asked.send(event)[1]["duplicates"] == 1
                found = [live.items(event["session_id"], top_k=TOP_K) for live in (asked, taken_by)]
                assert found[0] == found[1]
                assert len(found[0]) == TOP_K
        with live_client(models, url) as late:
            for event in events:
                assert late.items(event["session_id"]) == one.items(event["session_id"])
    with live_client(models, tmp_path / "alone.sqlite") as alone:
        alone.send(*events)
        assert alone.items(events[-1]["session_id"], top_k=TOP_K) == found[0]
