"""The answer of the report in plain words."""

from types import SimpleNamespace

import pytest

from dayahead.aggregate.conclusions import plain_answer


def answer(own, other, rival="transitions", **settings):
    names = {"ndcg_at_20": 0.9, "recall_at_10": 0.8}
    findings = SimpleNamespace(
        metric="ndcg_at_20", architecture="memory",
        summary=SimpleNamespace(aod={**names, "recall_at_20": own}), settings=settings,
    )  # fmt: skip
    return plain_answer(findings, SimpleNamespace(name=rival, aod={**names, "recall_at_20": other}))


def test_recall_is_said_in_sessions_of_a_hundred():
    assert answer(0.5382, 0.4747) == (
        "memory recommends the next click among its 20 in 54 of 100 sessions; transitions (what is "
        "most often clicked after the last item) in 47."
    )


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (0.5382, 0.5352, "538 of 1,000 sessions; other in 535"),
        (0.538, 0.0351, "538 of 1,000 sessions; other in 35"),
        (0.53821, 0.53812, "5,382 of 10,000 sessions; other in 5,381"),
        (0.5, 0.5, "50 of 100 sessions; other in 50"),
        (0.0004, 0.0004, "4 of 10,000 sessions; other in 4"),
        (1.0, 0.0, "100 of 100 sessions; other in 0"),
    ],
)
def test_shares_that_are_close_or_small_are_said_of_more(own, other, expected):
    assert f"in {expected}." in answer(own, other, "other")


def test_what_is_predicted_is_named():
    targets = {"events.targets": ["purchase", "cart"], "evaluation.positions": "all"}
    assert "the next purchase or cart among its 20 in 50 of 100 clicks" in answer(
        0.5, 0.4, **targets
    )
