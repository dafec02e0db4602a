"""Settings that name features of the data set: what it lacks is named at once."""

import pytest

from dayahead.config.feature_names import check_feature_names
from dayahead.core.errors import ConfigError
from support.tiny_settings import tiny_params

KINDS = {"category": "categorical", "price": "number"}


def check(section, name, value, kinds=KINDS):
    check_feature_names(tiny_params({section: {name: value}}), kinds, ["title"])


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("model", "features", ["price", "category"]),
        ("evaluation", "segments", ["user", "category"]),
        ("evaluation", "diversity_by", "category"),
        ("evaluation", "diversity_by", "title"),
        ("evaluation", "diversity_by", None),
    ],
)
def test_features_of_the_data_set_may_be_named(section, name, value):
    check(section, name, value)


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        (
            "model",
            "features",
            ["price", "nosuch", "x"],
            r"nosuch, x: no .* some of category, price$",
        ),
        ("model", "features", ["prise"], r"prise: .*; did you mean price\? expected some of"),
        ("evaluation", "segments", ["price"], r"price: no categorical feature .* user, category$"),
        ("evaluation", "segments", ["categry"], r"categry: .*; did you mean category\?"),
        (
            "evaluation",
            "diversity_by",
            "titel",
            r"titel: .* title\? .* category, title$",
        ),
    ],
)
def test_what_the_data_set_lacks_is_named_with_what_there_is(section, name, value, message):
    with pytest.raises(ConfigError, match=rf"^params\.yaml: {section}\.{name}: {message}"):
        check(section, name, value)


def test_a_data_set_without_features_has_none_to_name():
    with pytest.raises(ConfigError, match=r"features: price: .*; expected some of none$"):
        check("model", "features", ["price"], kinds={})
