"""The generated shop: types of events and a catalogue that agree with its clicks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dayahead.dataset.schema import load_dataset
from dayahead.dataset.source import SyntheticConfig
from dayahead.download.shop import catalogue, events_of
from dayahead.download.sources import fetch_sources
from dayahead.download.stage import download

CONFIG = SyntheticConfig(
    seed=1,
    days=4,
    sessions_per_day=800,
    n_items=600,
    n_topics=6,
    start=datetime(2026, 1, 1, tzinfo=UTC),
    shop=True,
)


@pytest.fixture(scope="module")
def log():
    return events_of(CONFIG).to_pandas()


@pytest.fixture(scope="module")
def items():
    return catalogue(CONFIG).to_pandas().set_index("item_id")


def test_the_views_are_the_clicks_of_the_plain_log(log):
    views = log[log["event_type"] == "view"].drop(columns="event_type")
    plain = events_of(replace(CONFIG, shop=False)).to_pandas()
    keys = ["session_id", "event_time", "item_id"]
    ordered = [table.sort_values(keys).reset_index(drop=True) for table in (views, plain)]
    pd.testing.assert_frame_equal(*ordered)
    assert "event_type" not in events_of(replace(CONFIG, shop=False)).column_names


def test_a_start_within_a_second_moves_clicks_and_catalogue_alike():
    part = timedelta(milliseconds=749)
    moved = replace(CONFIG, start=CONFIG.start + part)
    for make, column in ((events_of, "event_time"), (catalogue, "listed")):
        before, after = (make(each)[column].to_pandas() for each in (CONFIG, moved))
        assert set(after - before) == {part}


def test_carts_follow_views_and_purchases_follow_carts(log):
    assert log["event_time"].is_monotonic_increasing
    shares = log["event_type"].value_counts(normalize=True)
    assert shares["view"] > 0.8
    assert 0.15 > shares["cart"] > shares["purchase"] > 0.01
    first = log.groupby(["session_id", "item_id", "event_type"])["event_time"].min().unstack()
    assert (first["cart"].dropna() > first["view"].loc[first["cart"].dropna().index]).all()
    bought = first.dropna(subset=["purchase", "cart"])
    assert len(bought) > 50
    assert (bought["purchase"] > bought["cart"]).all()


def test_items_are_in_the_catalogue_days_before_they_are_clicked(log, items):
    first = log.groupby("item_id")["event_time"].min()
    known = items.loc[first.index]
    assert (first >= known["released"]).all()
    lead = (items["released"] - items["listed"]) / pd.Timedelta(days=1)
    assert lead.between(0.99, 5.01).all()
    assert (items["released"] > log["event_time"].min()).mean() > 0.3  # many come during the log
    assert len(items) == CONFIG.n_items > len(first)


def test_the_catalogue_says_what_the_clicks_say(log, items):
    clicked = log.drop_duplicates("item_id").set_index("item_id")
    known = items.loc[clicked.index]
    assert known["price"].equals(clicked["price"])
    assert known["category"].equals(clicked["category"])
    # Titles of a category are made of its own words; most items have a brand of it.
    words = items.groupby("category")["title"].agg(
        lambda each: {word for title in each for word in title.split()[1:]}
    )
    assert words.map(len).max() <= 12
    by_category = items.groupby("category")["brand"].value_counts(normalize=True)
    assert by_category.groupby(level=0).head(3).groupby(level=0).sum().min() > 0.7


def test_the_same_settings_give_the_same_shop():
    assert catalogue(CONFIG).equals(catalogue(CONFIG))
    assert events_of(CONFIG).equals(events_of(CONFIG))
    assert not catalogue(CONFIG).equals(catalogue(replace(CONFIG, seed=2)))


def test_the_embedded_shop_is_downloaded_without_a_file(tmp_path):
    dataset = load_dataset("synthetic_shop")
    small = replace(CONFIG, days=2, sessions_per_day=50)
    dataset = replace(dataset, source=replace(dataset.source, synthetic=small))
    download(dataset, "synthetic_shop", tmp_path / "raw")
    items = pq.read_table(tmp_path / "raw" / "items-00000.parquet")
    assert len(items) == 600
    assert items["content"][0].as_py() == f"{items['title'][0]} {items['brand'][0]}"
    assert "event_type" in pq.read_schema(tmp_path / "raw" / "events-00000.parquet").names


def test_the_plain_log_keeps_its_name_in_the_cache():
    """The hash of the settings in manifest.json is the one from before there were shops."""
    (source,) = fetch_sources(load_dataset("synthetic"), "synthetic")
    assert source.sha256.startswith("76329134297b184e")
