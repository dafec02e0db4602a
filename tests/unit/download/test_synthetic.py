"""The synthetic log has the documented structure."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from dayahead.dataset.schema import load_dataset
from dayahead.dataset.time import as_utc
from dayahead.download.shop import events_of
from dayahead.download.synthetic import log_end

CONFIG = load_dataset("synthetic", Path(__file__).parents[3] / "datasets").source.synthetic
FIRST_TEST_DAY = 8


@pytest.fixture(scope="module")
def log():
    return events_of(CONFIG).to_pandas()


def test_the_log_is_ordered_and_ends_with_its_last_day(log):
    assert log.event_time.is_monotonic_increasing
    assert log.event_time.min() >= as_utc(CONFIG.start)
    assert log.event_time.max() < log_end(CONFIG) == datetime(2026, 1, 16, tzinfo=UTC)


def test_session_lengths(log):
    lengths = log.groupby("session_id").size()
    assert 4 < lengths.mean() < 6
    assert lengths.max() > 20
    assert 0.05 < (lengths == 1).mean() < 0.15
    assert CONFIG.days * CONFIG.sessions_per_day * 0.95 < len(lengths)


def test_some_values_are_missing_and_users_return(log):
    assert 0.1 < log.user_id.isna().mean() < 0.2
    assert 0 < log.category.isna().mean() < 0.1
    sessions = log.dropna(subset=["user_id"]).groupby("user_id").session_id.nunique()
    assert 2 < sessions.mean() < 10


def test_popularity_is_skewed_and_rhythm_is_daily(log):
    counts = np.sort(log.item_id.value_counts().to_numpy())[::-1]
    assert counts[: len(counts) // 100].sum() > 0.08 * len(log)
    hours = log.event_time.dt.hour.value_counts()
    assert hours.loc[19] > 3 * hours.loc[4]


def test_items_are_released_and_fade(log):
    day = log.event_time.dt.day_of_year
    first, last = (set(log.item_id[day == d].value_counts().index[:100]) for d in (1, 15))
    assert len(first & last) < 30
    released_later = log.groupby("item_id").event_time.min().dt.day_of_year > FIRST_TEST_DAY
    assert released_later.mean() > 0.2


def test_sessions_stay_in_categories_and_price_tiers(log):
    follows = log.sort_values(["session_id", "event_time"], kind="stable")
    same_session = follows.session_id == follows.session_id.shift()
    same_category = (follows.category == follows.category.shift())[same_session].mean()
    by_chance = (follows.category.value_counts(normalize=True) ** 2).sum()
    assert same_category > 5 * by_chance
    logs = np.log(follows.price)
    within = logs.groupby(follows.session_id).std().mean()
    assert within < 0.9 * logs.std()


def recall_at_20(log) -> tuple[float, float]:
    """Return recall on last items of yesterday's popularity, and of transition counts."""
    sessions: dict[str, list[int]] = {}
    by_day: dict[int, list[list[int]]] = {}
    for session, item, day in zip(
        log.session_id, log.item_id, log.event_time.dt.day_of_year, strict=True
    ):
        if session not in sessions:
            sessions[session] = []
            by_day.setdefault(day, []).append(sessions[session])
        sessions[session].append(item)
    days = [[items[:20] for items in day if len(items) > 1] for day in by_day.values()]
    after: dict[int, dict[int, int]] = {}
    hits, total = np.zeros(2), 0
    for number, (today, tomorrow) in enumerate(pairwise(days), start=1):
        for items in today:
            for a, b in pairwise(items):
                counts = after.setdefault(a, {})
                counts[b] = counts.get(b, 0) + 1
        ids, n = np.unique(np.concatenate(today), return_counts=True)
        popular = ids[np.argsort(-n, kind="stable")][:20].tolist()
        for items in tomorrow if number >= FIRST_TEST_DAY else []:
            counts = after.get(items[-2], {})
            likely = sorted(counts, key=lambda item: -counts[item])
            hits += (items[-1] in popular, items[-1] in [*likely, *popular][:20])
            total += 1
    return tuple(hits / total)


def test_transitions_predict_better_than_popularity(log):
    popularity, transitions = recall_at_20(log)
    assert 0.08 < popularity < 0.2
    assert 0.38 < transitions < 0.55


def test_the_table_has_the_documented_types():
    table = events_of(replace(CONFIG, days=1, sessions_per_day=20))
    assert {field.name: str(field.type) for field in table.schema} == {
        "session_id": "string", "user_id": "string", "item_id": "int64",
        "event_time": "timestamp[us, tz=UTC]", "category": "string", "price": "double",
    }  # fmt: skip
    assert pc.min(table["price"]).as_py() > 0
