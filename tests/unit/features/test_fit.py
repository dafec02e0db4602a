"""Statistics: on whose events they are fitted, and that they are the plain ones."""

import math
from statistics import NormalDist, mean, stdev

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from dayahead.core.columns import ITEM_ID
from dayahead.core.files import write_parquet
from dayahead.dataset.features import FeatureConfig
from dayahead.features.engine import ColumnSelector
from dayahead.features.operators import GaussRank
from dayahead.features.vocabulary import (
    add_value_counts,
    count_values,
    empty_value_counts,
    vocabulary_of,
)
from dayahead.features.workflow import fit_features, looks_ahead
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics
from support.builders import dataset_config, events, random_log

PRICES = {
    "2026-01-01": [1.0, 3.0, None, np.inf, 8.0, 1000.0],
    "2026-01-02": [2.0, 2.0, 5.0, 1000.0],
    "2026-01-03": [7.0, 1000.0],
}


def items_in(*tables):
    """The vocabulary of items in some windows."""
    counts = [(f"window {n}", count_values(table, ITEM_ID)) for n, table in enumerate(tables)]
    return {ITEM_ID: vocabulary_of(add_value_counts(empty_value_counts(pa.int64()), counts))}


def fit_prices(path, prices, feature, **columns):
    """Fit a feature `price` to one window of train events, and return its statistics."""
    rows = [{"item_id": 1, "event_time": "2026-01-01", "train": True, **columns}] * len(prices)
    table = events(rows).append_column("price", pa.array(prices, pa.float64()))
    write_parquet(path, table)
    features = {name: FeatureConfig(kind="categorical", column=name) for name in columns}
    features["price"] = FeatureConfig(**feature)
    return fit_features(features, {"w": path}, 1, items_in(table))["price"]


@pytest.fixture
def fit(tmp_path):
    """Fit features to a log of three days: the last event of each is not for training."""
    paths, tables = {}, []
    for window, prices in PRICES.items():
        rows = [
            {
                "item_id": n % 2,
                "event_time": f"{window} 0{n}:00",
                "price": price,
                "brand": [None, "a", "b", "a", "b", "a"][n],
                "train": n < len(prices) - 1,
            }
            for n, price in enumerate(prices)
        ]
        paths[window] = tmp_path / f"{window}.parquet"
        tables.append(events(rows))
        write_parquet(paths[window], tables[-1])
    vocabularies = items_in(*tables)

    def fit(fit_windows=1, **features):
        brand = FeatureConfig(kind="categorical", column="brand")
        configs = {name: FeatureConfig(**feature) for name, feature in features.items()}
        found = fit_features({"brand": brand, **configs}, paths, fit_windows, vocabularies)
        return {name: found[name] for name in configs}

    return fit


def number(**settings):
    return {"kind": "number", "column": "price", **settings}


def test_mean_and_std_are_those_of_the_first_windows_train_events(fit):
    found = fit(price=number())["price"]
    assert (found.kind, found.columns) == ("number", ["price"])
    assert (found.mean, found.std) == (4, pytest.approx(stdev([1, 3, 8])))
    two = [1, 3, 8, 2, 2, 5]
    found = fit(2, price=number())["price"]
    assert (found.mean, found.std) == (mean(two), pytest.approx(stdev(two)))


def test_looking_ahead_fits_on_every_window(fit):
    ahead = number(fit="look_ahead", scale="gauss_rank")
    found = fit(price=ahead)["price"]
    assert (found.knots, found.n) == ([1, 2, 2, 3, 5, 7, 8], 7)
    each = fit(price=number(fit="look_ahead_window"))["price"].windows
    assert list(each) == list(PRICES)
    second = each["2026-01-02"]
    assert (second.mean, second.std) == (3, pytest.approx(stdev([2, 2, 5])))
    assert each["2026-01-03"] == NumberStatistics(mean=7, std=0)
    assert looks_ahead({"price": FeatureConfig(**ahead)})
    assert not looks_ahead({"price": FeatureConfig(**number(fit="look_ahead_window"))})


def test_a_relative_number_has_the_mean_of_each_category(fit):
    relative = {"kind": "relative_number", "column": "price", "relative_to": "brand"}
    found = fit(price=relative)["price"]
    means = (["a", "b"], [3, 8], 4)
    assert found.relative_to == "brand"
    assert (found.values, found.means, found.overall_mean) == means
    # 1 has no brand and is compared with the overall mean, 3 with that of a, 8 with that of b.
    ratios = [(1 - 4) / 4, 0, 0]
    found = fit(price={**relative, "scale": "standard"})["price"]
    assert (found.values, found.means, found.overall_mean) == means
    assert (found.mean, found.std) == (mean(ratios), pytest.approx(stdev(ratios)))


def test_ages_are_fitted_as_logarithms_of_days(fit):
    age = {"kind": "item_age", "scale": "gauss_rank", "fit": "look_ahead"}
    # Items 0 and 1 by turns, an hour between; each day's last event is not for training.
    hours = [0, 0, 2, 2, 4, 24, 24, 26, 48]
    found = fit(age=age)["age"]
    assert found.knots == pytest.approx(np.log1p(np.array(hours) / 24))
    fixed = fit(age={"kind": "item_age"})["age"]
    assert fixed == FeatureStatistics(kind="item_age", columns=["age"])


@pytest.mark.parametrize(("prices", "average"), [([None, None], 0), ([5.0, 5.0], 5), ([5.0], 5)])
def test_statistics_are_finite_where_there_is_little_to_fit(tmp_path, prices, average):
    found = fit_prices(tmp_path / "a.parquet", prices, number())
    assert (found.mean, found.std) == (average, 0)


@pytest.mark.parametrize(
    ("feature", "scaled"),
    [
        (number(), lambda price, _: price),
        ({"kind": "log_number", "column": "price"}, lambda price, _: np.log1p(price)),
        (
            {"kind": "relative_number", "column": "price", "relative_to": "brand"},
            lambda price, mean_price: (price - mean_price) / mean_price,
        ),
    ],
    ids=["number", "log_number", "relative_number"],
)
def test_moments_have_the_precision_of_float64(tmp_path, feature, scaled):
    """Sums of float32 would be right to 7 digits only, and others with another NumPy."""
    n = 20_000
    prices = np.random.default_rng(3).lognormal(3, 1, n)
    feature = {**feature, "scale": "standard"}
    found = fit_prices(tmp_path / "a.parquet", prices, feature, brand="a")
    wanted = scaled(prices, math.fsum(prices) / n)
    average = math.fsum(wanted) / n
    std = math.sqrt(math.fsum((wanted - average) ** 2) / (n - 1))
    assert (found.mean, found.std) == pytest.approx((average, std), rel=1e-12, abs=1e-12)


def test_windows_may_be_written_with_their_own_statistics(run):
    log = random_log(seed=5, days=3)
    features = {"price": number(scale="gauss_rank", fit="look_ahead_window")}
    store = run(log, dataset_config(features=features))
    known = store.statistics.features["price"].windows
    assert list(known) == [window.name for window in store.windows]
    for window in store.windows:
        lists = pq.read_table(store.path(window, "train"), partitioning=None)["price"]
        values = lists.combine_chunks().flatten().to_numpy()
        # The highest price of a window has the highest rank of that window.
        n = known[window.name].n
        assert values.max() == pytest.approx(NormalDist().inv_cdf(1 - 0.5 / n), abs=1e-5)
        assert values.min() < 0


numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=60)


def fit_ranks(partitions):
    """A GaussRank fitted to partitions of a column x, and its output for each."""
    operator = GaussRank()
    selector = ColumnSelector(["x"])
    frames = [pd.DataFrame({"x": np.array(partition, float)}) for partition in partitions]
    statistics = operator.fit(
        selector, dd.from_map(lambda number: frames[number], range(len(frames)))
    )
    operator.fit_finalize(statistics.compute(scheduler="synchronous"))
    return operator, [operator.transform(selector, frame)["x"] for frame in frames]


@pytest.mark.long
@given(st.lists(numbers, min_size=1, max_size=4))
def test_few_numbers_keep_their_mean_ranks(partitions):
    _, outputs = fit_ranks(partitions)
    every = np.sort(np.concatenate(partitions))
    for partition, found in zip(partitions, outputs, strict=True):
        below, upto = (np.searchsorted(every, partition, side) for side in ("left", "right"))
        ranks = (below + upto + 1) / 2
        shares = (ranks - 0.5) / len(every)
        assert found.tolist() == pytest.approx([NormalDist().inv_cdf(s) for s in shares], abs=1e-5)


def test_many_numbers_keep_their_ranks_to_a_thousandth():
    rng = np.random.default_rng(1)
    partitions = [rng.normal(size=n) for n in (30_000, 5_000)]
    operator, outputs = fit_ranks(partitions)
    assert len(operator.knots) == 1001
    every = np.sort(np.concatenate(partitions))
    exact = (np.searchsorted(every, partitions[0]) + 0.5) / len(every)
    assert np.abs(ndtr(outputs[0]) - exact).max() < 1e-3
