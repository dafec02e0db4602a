"""Few scores over shared ones rank like a score for each candidate."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ScoreError
from dayahead.metrics.scores import DenseScores, FewScores, SharedScores, scores_of_cells

# Few distinct values, so that ties are the rule.
SCORES = st.integers(-3, 3).map(float)


@st.composite
def few_scores(draw):
    """1 to 5 scores of their own for each row, above and below those that 0 to 9 columns share."""
    shared = draw(st.lists(SCORES, max_size=9))
    n_rows, n_few = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    columns = [draw(st.permutations(range(len(shared)))) for _ in range(n_rows)]
    n_own = [draw(st.integers(0, min(n_few, len(shared)))) for _ in range(n_rows)]
    padded = [row[:n] + [-1] * (n_few - n) for row, n in zip(columns, n_own, strict=True)]
    own = draw(st.lists(SCORES, min_size=n_rows * n_few, max_size=n_rows * n_few))
    return FewScores(
        SharedScores(torch.tensor(shared)),
        torch.tensor(padded),
        torch.tensor(own).view(n_rows, n_few),
    )


@given(few_scores(), st.integers(0, 12))
def test_the_best_are_those_of_all_scores(few, k):
    for found, wanted in zip(few.best(k), DenseScores(few.dense()).best(k), strict=True):
        assert torch.equal(found, wanted)


@given(few_scores(), st.data())
def test_scores_and_counts_are_those_of_all_scores(few, data):
    dense, n = DenseScores(few.dense()), len(few.shared.scores)
    columns = [data.draw(st.integers(-1, n - 1)) for _ in few.columns]
    at = few.at(torch.tensor(columns))
    assert torch.equal(at, dense.at(torch.tensor(columns)))
    for score in (at, torch.full((len(at),), data.draw(SCORES) + 0.5)):
        assert torch.equal(few.n_at_least(score), dense.n_at_least(score))


@given(few_scores(), st.data())
def test_replaced_scores_are_those_of_all_scores(few, data):
    """Columns are distinct, some have a score of their own already; a row may have fewer."""
    dense, n = DenseScores(few.dense()), len(few.shared.scores)
    width = data.draw(st.integers(0, 3))
    rows = [data.draw(st.permutations(range(n)))[:width] for _ in few.columns]
    columns = torch.tensor([[*row] + [-1] * (width - len(row)) for row in rows]).view(
        len(rows), width
    )
    values = torch.tensor([data.draw(SCORES) for _ in range(columns.numel())]).view(columns.shape)
    found = few.replaced(columns.long(), values)
    assert torch.equal(found.dense(), dense.replaced(columns.long(), values).dense())
    assert (found.floor() <= found.dense()).all()
    for some, wanted in zip(found.best(3), DenseScores(found.dense()).best(3), strict=True):
        assert torch.equal(some, wanted)


@pytest.mark.parametrize("n_more", [0, 40])
def test_cells_are_scores_of_their_own(n_more):
    """Rows with up to two of them, which are few where there are 43 candidates."""
    shared = SharedScores(torch.tensor([1.0, 2.0, 3.0, *(0.5,) * n_more]))
    cells = np.array([0, 0, 2]), np.array([2, 0, 1])
    found = scores_of_cells(shared, 4, cells, torch.tensor([5.0, 4, 9]))
    assert isinstance(found, FewScores if n_more else DenseScores)
    assert found.dense()[:, :3].tolist() == [[4, 2, 5], [1, 2, 3], [1, 9, 3], [1, 2, 3]]
    assert (found.dense()[:, 3:] == 0.5).all()
    lowest = [0.5] * 4 if n_more else [2, 1, 1, 1]
    assert found.floor().flatten().tolist() == lowest


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_score_that_is_not_finite_is_an_error(is_shared, value):
    shared = torch.tensor([1.0, value if is_shared else 2.0, 3.0])
    own = torch.tensor([[1.0 if is_shared else value, value]])
    few = FewScores(SharedScores(shared), torch.tensor([[2, -1]]), own)
    with pytest.raises(ScoreError, match="1 of 1 rows contain scores that are not finite"):
        few.n_at_least(torch.zeros(1))


def test_a_score_of_no_column_does_not_matter():
    shared = SharedScores(torch.tensor([1.0, 2.0]))
    few = FewScores(shared, torch.tensor([[-1]]), torch.tensor([[float("nan")]]))
    assert few.n_at_least(torch.tensor([1.5])).tolist() == [1]
    assert few.best(2)[0].tolist() == [[1, 0]]
    assert few.at(torch.tensor([0])).tolist() == [1]


def test_the_first_columns_are_the_same_however_many_were_wanted_before():
    shared = SharedScores(torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0]))
    assert [shared.first(n).tolist() for n in (1, 4, 2, 9, 0)] == [
        [1],
        [1, 3, 2, 4],
        [1, 3],
        [1, 3, 2, 4, 0],
        [],
    ]
