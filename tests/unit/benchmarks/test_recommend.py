"""The model whose recommendations a benchmark times."""

import pytest

from recommend import EVENTS, FEATURES, recommender


@pytest.mark.parametrize("features", [{}, FEATURES])
def test_the_model_recommends(features):
    assert len(recommender(features).recommend_after(EVENTS, 3)) == 3
