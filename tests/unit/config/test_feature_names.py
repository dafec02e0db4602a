"""Settings that name features of the data set: what it lacks is named at once."""

import pytest

from dayahead.config.feature_names import check_feature_names
from dayahead.core.errors import ConfigError
from support.tiny_settings import tiny_params

KINDS = {"category": "categorical", "price": "number"}


def check(names, kinds=KINDS):
    check_feature_names(tiny_params({"model": {"features": names}}), kinds)


def test_features_of_the_data_set_may_be_named():
    check(["price", "category"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nosuch", "x"], r"nosuch, x: no .* some of category, price$"),
        (["prise"], r"prise: .*; did you mean price\? expected some of"),
    ],
)
def test_what_the_data_set_lacks_is_named_with_what_there_is(names, message):
    with pytest.raises(ConfigError, match=rf"^params\.yaml: model\.features: {message}"):
        check(names)


def test_a_data_set_without_features_has_none_to_name():
    with pytest.raises(ConfigError, match=r"features: price: .*; expected some of none$"):
        check(["price"], kinds={})
