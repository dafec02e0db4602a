"""Settings that name features, checked against a data set file before its log is fetched."""

import pytest

from dayahead.core.errors import ConfigError
from dayahead.dataset.named_features import check_features
from dayahead.dataset.schema import load_dataset
from support.project_copy import ROOT
from support.tiny_settings import tiny_params


def check(dataset, **sections):
    check_features(load_dataset(dataset, ROOT / "datasets"), tiny_params(sections))


def test_features_of_the_log_and_of_its_table_of_items_may_be_named():
    shop = load_dataset("synthetic_shop", ROOT / "datasets")
    names = [*shop.features, *shop.items.features]
    check(
        "synthetic_shop",
        model={"features": names},
        events={"targets": ["purchase"]},
    )


def test_an_unknown_feature_is_named():
    with pytest.raises(ConfigError, match=r"model\.features: catgory: .*did you mean category"):
        check("synthetic", model={"features": ["catgory"]})


def test_types_of_events_need_a_column():
    with pytest.raises(ConfigError, match=r"events: cart: .* no types; .* of datasets/"):
        check("synthetic", events={"targets": ["cart"]})
