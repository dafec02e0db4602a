"""Metrics of other packages: their values, and what is refused."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayahead.config.metric_names import BUILT_IN, OF_LISTS, known_metrics
from dayahead.core.errors import ConfigError
from dayahead.metrics.metrics import main_metric, metric_names, target_metric, window_metrics
from support.tiny_settings import tiny_params
from support.user_packages import MODULE

RANKS = st.lists(st.integers(0, 40), min_size=1, max_size=60).map(np.array)


def declare(install, source, name="rbp"):
    install(f"import numpy as np\n{source}\n", {"dayahead.metrics": {name: f"{MODULE}:metric"}})


def test_rank_biased_precision_by_hand(shop_models):
    found = target_metric("rbp_at_3", np.array([1, 2, 3, 4, 0], np.int32))
    assert found.dtype == np.float64
    assert found == pytest.approx([0.2, 0.2 * 0.8, 0.2 * 0.64, 0, 0], rel=1e-15)
    means = window_metrics(np.array([1, 3, 7, 0]), [2, 5], ["rbp"])
    assert [*means][-2:] == ["rbp_at_2", "rbp_at_5"]
    assert means["rbp_at_2"] == pytest.approx(0.2 / 4)
    assert means["rbp_at_5"] == pytest.approx((0.2 + 0.2 * 0.64) / 4)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RANKS)
def test_one_of_a_package_equals_ours_where_it_is_the_same_function(install, ranks):
    body = "np.where((ranks > 0) & (ranks <= k), 1 / np.log2(1 + ranks), 0.0)"
    declare(install, f"def metric(ranks, k):\n    return {body}", "gain")
    assert target_metric("gain_at_5", ranks).tolist() == target_metric("ndcg_at_5", ranks).tolist()


def test_names_of_packages_follow_ours_and_ndcg_stays_the_main_one():
    names = metric_names([20, 10], ["ndcg_graded"])
    assert names[-4:] == ["mrr_at_10", "mrr_at_20", "ndcg_graded_at_10", "ndcg_graded_at_20"]
    assert main_metric(names) == "ndcg_at_20"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("ranks.mean()", r"a number for each target, \[4\], found the shape \[\]"),
        ("ranks[:, None]", r"found the shape \[4, 1\]"),
        ("1 / ranks", r"finite numbers, found inf for rank 0"),
        ("ranks * np.nan", r"finite numbers, found nan for rank 1"),
        ("'high'", r"found an error \(ValueError: could not convert"),
        ("ranks.nothing", r"found an error \(AttributeError: .*nothing"),
        ("ranks / ranks.sum()", r"whichever others are in it, found .* for rank 1"),
        ("ranks * np.random.rand()", r"the same value of a target in each call"),
    ],
)
def test_values_of_a_wrong_kind_are_one_error(install, body, found):
    declare(install, f"def metric(ranks, cutoff):\n    return {body}")
    pattern = rf"^evaluation\.metrics: rbp at cutoff 5: expected .*{found}"
    with pytest.raises(ConfigError, match=pattern) as caught:
        target_metric("rbp_at_5", np.array([1, 3, 0, 2]))
    assert "\n" not in str(caught.value)


def test_a_function_cannot_change_the_ranks(install):
    declare(install, "def metric(ranks, cutoff):\n    ranks[:] = 9\n    return ranks")
    ranks = np.array([1, 2])
    assert target_metric("rbp_at_5", ranks).tolist() == [9, 9]
    assert ranks.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["rpb"], r"rpb: no installed package .*did you mean rbp\?"),
        (["rbp", "rbp"], r"rbp: name each metric once"),
        (["ndcg"], r"ndcg is one of ours"),
        (["coverage"], r"coverage is one of ours"),
    ],
)
def test_unknown_names_are_an_error_of_the_settings(shop_models, names, found):
    with pytest.raises(ConfigError, match=rf"evaluation\.metrics: {found}"):
        tiny_params({"evaluation": {"metrics": names}})


def test_a_function_is_not_called_without_targets(install):
    declare(install, "def metric(ranks, cutoff):\n    return ranks / 2 if ranks.max() else ranks")
    assert target_metric("rbp_at_5", np.array([], np.int32)).tolist() == []
    assert target_metric("rbp_at_5", np.array([3])).tolist() == [1.5]


@pytest.mark.parametrize(
    "metric", ["nbp_at_20", "rbp_at_0", "rbp", "rbp_at_", "_at_20", "rbp_at_1.5"]
)
def test_a_night_names_a_metric_that_there_is(shop_models, metric):
    with pytest.raises(ConfigError, match=r"nightly\.metric: expected recall_at_20.*rbp_at_20"):
        tiny_params({"nightly": {"metric": metric}})
    assert tiny_params({"nightly": {"metric": "rbp_at_7"}}).nightly.metric == "rbp_at_7"


@pytest.mark.parametrize("name", ["train_rbp", "rbp_at_5", "RBP", "r-b-p"])
def test_a_name_that_no_column_can_have_is_refused(install, name):
    declare(install, "def metric(ranks, cutoff):\n    return ranks", name)
    with pytest.raises(ValueError, match="rename the entry point"):
        known_metrics([name])


def test_without_a_package_the_error_says_that_none_is_installed():
    with pytest.raises(ConfigError, match=r"rbp: no installed package .*\(none is installed\)"):
        tiny_params({"evaluation": {"metrics": ["rbp"]}})
    with pytest.raises(ConfigError, match=r"metric rbp: no installed package declares it"):
        target_metric("rbp_at_5", np.array([1]))


def test_our_own_names_are_those_that_are_computed():
    assert metric_names([1]) == [f"{name}_at_1" for name in BUILT_IN]
    assert not {*OF_LISTS} & {*BUILT_IN}
