"""A saved model beside windows: whose indices and scales are its own."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dayahead.core.errors import ModelFileError
from dayahead.train.saved_model import check_same_data
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics
from support.window_folders import tiny_statistics

PRICE = FeatureStatistics(
    kind="number",
    columns=["price"],
    windows={"1": NumberStatistics(mean=1.0, std=2.0), "2": NumberStatistics(mean=2.0, std=2.0)},
)
KNOWN = replace(tiny_statistics(fitted_on=["1"]), features={"price": PRICE})


def check(known, fitted):
    """Check windows of these statistics against a model of those."""
    config = SimpleNamespace(
        model=SimpleNamespace(features=tuple(fitted.features)), statistics=fitted
    )
    stored = SimpleNamespace(config=config, vocabularies={})
    check_same_data(stored, SimpleNamespace(statistics=known, folder=Path("windows")))


def test_a_longer_log_has_more_windows_with_scales_of_their_own():
    older = replace(PRICE, windows={"1": PRICE.windows["1"]})
    check(KNOWN, replace(KNOWN, features={"price": older}))
    with pytest.raises(ModelFileError, match="other statistics"):
        check(replace(KNOWN, features={"price": older}), KNOWN)


def test_windows_without_a_feature_of_the_model_are_refused():
    with pytest.raises(ModelFileError, match="other statistics"):
        check(replace(KNOWN, features={}), KNOWN)
