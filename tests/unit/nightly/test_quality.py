"""Whether quality rose or fell."""

import pytest

from dayahead.nightly.history import Entry, State
from dayahead.nightly.quality import quality_of, quality_of_published


def night(day, champion, kind="published", metric=None, **baselines):
    window = f"2026-01-0{day}"
    metrics = {"champion": champion, **baselines} if kind != "refused" else {}
    details = {"windows": [window]} | ({"metric": metric} if metric else {})
    return Entry(kind=kind, why="", window=window, metrics=metrics, details=details)


def quality(*nights, n=3):
    return quality_of(State(nights), nights[-1], "ndcg_at_20", n)


def test_it_is_compared_with_the_window_before_and_the_median_of_several():
    nights = [night(1, 0.9), night(2, 0.4), night(3, 0.2, "held"), night(4, 0.3)]
    found = quality(*nights, night(5, 0.24, popularity=0.1, own=0.2))
    assert (found.before, found.usual, found.n_usual) == (("2026-01-04", 0.3), 0.3, 3)
    assert str(found) == (
        "NDCG@20 0.2400 in 2026-01-05: 20.0% down from 2026-01-04 and 20.0% below the median of "
        "the 3 windows before; best counting baseline: own, 0.2000"
    )


def test_that_of_the_newest_published_night_is_compared_with_all_before_it():
    nights = [night(1, 0.4), night(2, 0.2, "held"), night(3, 0.3), night(4, 0.1, "held")]
    found = quality_of_published(State(nights), "ndcg_at_20", 3)
    assert found.as_json == {
        "metric": "NDCG@20", "window": "2026-01-03", "value": 0.3,
        "before": {"window": "2026-01-02", "value": 0.2},
        "usual": {"windows": 2, "median": pytest.approx(0.3)},
    }  # fmt: skip
    first = quality_of_published(State(nights[:1]), "ndcg_at_20", 3)
    assert (first.as_json["before"], first.as_json["usual"]) == (None, None)
    assert quality_of_published(State(nights[1:2]), "ndcg_at_20", 3) is None


def test_the_first_window_has_nothing_before_it():
    assert str(quality(night(1, 0.5))) == "NDCG@20 0.5000 in 2026-01-01, the first window"


def test_a_window_that_was_decided_again_counts_once_with_its_newest_figure():
    found = quality(night(1, 0.1), night(2, 0.9, "held"), night(2, 0.2), night(3, 0.3))
    assert found.before == ("2026-01-02", 0.2)
    assert found.usual == pytest.approx(0.15)


def test_values_of_another_metric_are_not_compared():
    """Nights before a change of nightly.metric; those of older versions do not say by which."""
    recall = night(2, 0.6, metric="recall_at_20")
    nights = [night(1, 0.3), recall, night(3, 0.2, metric="ndcg_at_20")]
    found = quality(*nights)
    assert (found.before, found.n_usual) == (("2026-01-01", 0.3), 1)
    found = quality_of(State(nights), recall, "ndcg_at_20", 3)
    assert str(found).startswith("Recall@20 0.6000 in 2026-01-02: 100.0% up from 2026-01-01")
    found = quality_of(State(nights[1:]), nights[2], "ndcg_at_20", 3)
    assert str(found) == "NDCG@20 0.2000 in 2026-01-03, the first window"


def test_a_refused_night_has_none():
    assert quality(night(1, 0.5), night(2, 0, "refused")) is None


@pytest.mark.parametrize(("before", "by"), [(0.0, "0.5000 up"), (0.01, "0.4900 up")])
def test_next_to_nothing_before_is_compared_by_the_difference(before, by):
    assert f": {by} from 2026-01-01" in str(quality(night(1, before), night(2, 0.5)))
