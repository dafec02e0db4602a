"""Metrics against fractions worked out by hand."""

from fractions import Fraction
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.metric_names import BUILT_IN
from dayahead.metrics.metrics import mean, metric_names, target_metric, window_metrics

RANKS = st.lists(st.integers(0, 40), min_size=1, max_size=60).map(np.array)


def test_names_come_by_kind_then_cutoff():
    assert metric_names([20, 10, 20]) == [
        "recall_at_10", "recall_at_20", "ndcg_at_10", "ndcg_at_20", "mrr_at_10", "mrr_at_20",
    ]  # fmt: skip


def test_values_of_a_session_by_hand():
    ranks = np.array([1, 2, 3, 4, 0])
    assert target_metric("recall_at_3", ranks).tolist() == [1, 1, 1, 0, 0]
    assert target_metric("ndcg_at_3", ranks).tolist() == [1, 1 / log2(3), 1 / 2, 0, 0]
    assert target_metric("mrr_at_3", ranks).tolist() == [1, 1 / 2, 1 / 3, 0, 0]


def test_means_of_a_window_by_hand():
    metrics = window_metrics(np.array([1, 3, 7, 0, 12]), [5, 10])
    assert metrics["recall_at_5"] == 2 / 5
    assert metrics["recall_at_10"] == 3 / 5
    assert metrics["ndcg_at_5"] == pytest.approx((1 + 1 / 2) / 5, rel=1e-15)
    assert metrics["ndcg_at_10"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 5, rel=1e-15)
    assert metrics["mrr_at_10"] == pytest.approx(float((1 + Fraction(1, 3) + Fraction(1, 7)) / 5))


@given(RANKS)
def test_ndcg_and_mrr_never_exceed_recall_and_mrr_never_ndcg(ranks):
    metrics = window_metrics(ranks, [10])
    assert metrics["mrr_at_10"] <= metrics["ndcg_at_10"] <= metrics["recall_at_10"]


@given(RANKS)
def test_every_metric_grows_with_the_cutoff(ranks):
    metrics = window_metrics(ranks, [1, 5, 20])
    for kind in BUILT_IN:
        assert metrics[f"{kind}_at_1"] <= metrics[f"{kind}_at_5"] <= metrics[f"{kind}_at_20"]


@given(RANKS)
def test_at_cutoff_one_all_metrics_are_the_same(ranks):
    assert len(set(window_metrics(ranks, [1]).values())) == 1


@given(RANKS, st.randoms(use_true_random=False))
def test_order_of_the_sessions_changes_no_bit(ranks, random):
    shuffled = ranks.tolist()
    random.shuffle(shuffled)
    assert window_metrics(np.array(shuffled), [10, 20]) == window_metrics(ranks, [10, 20])


def test_the_sum_is_exact():
    assert mean([1e16, 1.0, -1e16]) == 1 / 3
