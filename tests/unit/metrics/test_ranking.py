"""Ranks against sorting by hand, ties and all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ScoreError
from dayahead.metrics import ranking
from dayahead.metrics.ranking import n_at_least, scores_at, top_columns, top_of

# Few distinct values, so that ties are the rule.
SCORES = st.integers(-3, 3).map(float)


@st.composite
def batches(draw):
    n_rows, n_candidates = draw(st.integers(0, 6)), draw(st.integers(0, 9))
    rows = st.lists(SCORES, min_size=n_candidates, max_size=n_candidates)
    scores = draw(st.lists(rows, min_size=n_rows, max_size=n_rows))
    targets = draw(st.lists(st.integers(-1, n_candidates - 1), min_size=n_rows, max_size=n_rows))
    return torch.tensor(scores).reshape(n_rows, n_candidates), torch.tensor(targets).long()


def target_ranks(scores, targets):
    """Rank of each row's target, 0 where it is no candidate."""
    return torch.where(targets >= 0, n_at_least(scores, scores_at(scores, targets)), 0)


def rank_by_sorting(scores, target):
    """Sort the worst-case list: among equals the target comes last."""
    if target < 0:
        return 0
    order = sorted(range(len(scores)), key=lambda j: (-scores[j], j == target))
    return order.index(target) + 1


@given(batches())
def test_rank_is_the_place_in_a_sorted_list_with_ties_against_the_target(batch):
    scores, targets = batch
    expected = [
        rank_by_sorting(row, target)
        for row, target in zip(scores.tolist(), targets.tolist(), strict=True)
    ]
    assert target_ranks(scores, targets).tolist() == expected


def test_equals_numpy_at_size():
    random = np.random.default_rng(0)
    scores = random.normal(size=(64, 5000)).astype(np.float32).round(2)
    targets = random.integers(0, 5000, 64)
    own = scores[np.arange(64), targets][:, None]
    expected = (scores >= own).sum(axis=1)
    found = target_ranks(torch.from_numpy(scores), torch.from_numpy(targets))
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_not_finite_is_refused_wherever_it_stands(bad):
    scores = torch.zeros(4, 5)
    scores[1, 3] = scores[2, 0] = bad
    with pytest.raises(ScoreError, match=r"2 of 4 rows .* row 1, candidate column 3"):
        target_ranks(scores, torch.tensor([0, 0, -1, 0]))


@pytest.mark.parametrize("cached", [1, 3_000, 10_000])
def test_parts_of_a_batch_rank_like_the_whole(monkeypatch, cached):
    scores = torch.randn(40, 1_000).round(decimals=1)
    targets = torch.randint(-1, 1_000, (40,))
    whole = target_ranks(scores, targets), *top_columns(scores, 30)
    monkeypatch.setattr(ranking, "CACHED_SCORES", cached)
    parts = target_ranks(scores, targets), *top_columns(scores, 30)
    assert all(torch.equal(part, one) for part, one in zip(parts, whole, strict=True))


def test_a_rank_beyond_the_numbers_exact_in_float32():
    n_candidates = ranking.EXACT_COUNTS + 1
    assert target_ranks(torch.zeros(1, n_candidates), torch.tensor([0])).tolist() == [n_candidates]


def test_large_scores_whose_sum_overflows_are_finite():
    scores = torch.full((2, 4), 3e38)
    scores[1] = -3e38
    assert target_ranks(scores, torch.tensor([1, 2])).tolist() == [4, 4]


@pytest.mark.parametrize("pair", [(torch.inf, -torch.inf), (torch.inf, 1.0), (torch.nan, 0.0)])
def test_no_pair_of_scores_hides_one_that_is_not_finite(pair):
    scores = torch.zeros(3, 100)
    scores[2, [7, 70]] = torch.tensor(pair)
    with pytest.raises(ScoreError, match=r"1 of 3 rows .* row 2, candidate column 7 "):
        target_ranks(scores, torch.tensor([0, 1, 2]))


@given(batches(), st.integers(0, 10))
def test_best_columns_are_the_head_of_a_sorted_list(batch, n_best):
    scores, _ = batch
    columns, found = top_columns(scores, n_best)
    for row, of_row, best in zip(scores.tolist(), found.tolist(), columns.tolist(), strict=True):
        wanted = sorted(range(len(row)), key=lambda j: (-row[j], j))[:n_best]
        assert best == wanted
        assert of_row == [row[j] for j in wanted]


def test_nan_is_among_the_best_also_above_a_tie():
    """It is refused where ranks are counted, which may come later."""
    columns, _ = top_columns(torch.tensor([[1.0, torch.nan, 1.0, torch.nan]]), 3)
    assert sorted(columns[0].tolist()) == [0, 1, 3]


FLOATS = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0])


@given(st.lists(st.tuples(FLOATS, st.integers(0, 2**31 - 1)), min_size=1, max_size=12), st.data())
def test_the_best_of_some_columns_are_those_of_a_sort(pairs, data):
    """By score, best first, then by column; the columns come in any order."""
    pairs = [*{column: (score, column) for score, column in pairs}.values()]
    k = data.draw(st.integers(0, len(pairs)))
    scores, columns = zip(*pairs, strict=True)
    found = top_of(torch.tensor([columns]), torch.tensor([scores]), k)
    wanted = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:k]
    assert found[0].tolist() == [[column for _, column in wanted]]
    assert found[1].tolist() == [[score for score, _ in wanted]]


@pytest.mark.parametrize("nan", [torch.nan, -torch.nan])
def test_nan_is_above_all_other_scores(nan):
    columns, found = top_of(torch.tensor([[7, 8, 9]]), torch.tensor([[torch.inf, nan, 2.0]]), 2)
    assert columns.tolist() == [[7, 8]]
    assert found.isnan().tolist() == [[False, True]]
