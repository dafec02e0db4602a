"""Metrics by age: by hand, as parts of the whole, and decisions from ranks of known ageing."""

import csv
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.aggregate.ages import STALENESS, AgeSums, write_staleness
from dayahead.aggregate.conclusions import age_conclusion
from dayahead.aggregate.targets import HOUR
from dayahead.metrics.metrics import metric_names, target_metric

DAY = 24 * HOUR
NAMES = ["recall_at_10", "ndcg_at_10"]


def sums_of(*, tick=0, length=DAY, names=NAMES):
    return AgeSums(names, "ndcg_at_10", length, tick)


def hours(*values):
    return np.array([round(value * HOUR) for value in values])


def shown(groups):
    about = ("since", "start", "end", "n_windows", "n_targets")
    return [
        (*(getattr(group, name) for name in about), group.metrics["recall_at_10"])
        for group in groups
    ]


def test_ages_by_hand():
    sums = sums_of(tick=HOUR)
    sums.add(hours(-0.1, 0.5, 1), hours(0.9, 0.5, 0), np.array([1, 0, 3]), {})
    # The model fitted a day earlier misses the second target; a gap makes the other 49 h older.
    later = {2: (np.array([3, 0]), DAY), 3: (np.array([0, 30]), 49 * HOUR)}
    sums.add(hours(0.25, 1.99), hours(0.25, 2), np.array([1, 11]), later)
    found = sums.result(horizon=3)
    assert shown(found.since("fit")) == [
        ("fit", 0, 1, 2, 3, 2 / 3),
        ("fit", 1, 2, 2, 2, 1 / 2),
        ("fit", 24, 25, 1, 1, 1),
        ("fit", 25, 26, 1, 1, 0),
        ("fit", 49, 50, 1, 1, 0),
        ("fit", 50, 51, 1, 1, 0),
    ]
    assert [group.newest for group in found.since("fit")] == [2 / 3, 1 / 4, 1, 0, 1, 0]
    assert shown(found.since("tick")) == [
        ("tick", 0, pytest.approx(0.1), 1, 1, 1),
        ("tick", pytest.approx(0.2), pytest.approx(0.3), 1, 1, 1),
        ("tick", 0.5, pytest.approx(0.6), 1, 1, 0),
        ("tick", 0.9, 1, 1, 1, 1),
    ]  # the click after the end of its window has no tick


def test_changes_by_hand():
    """Ranks 1 and 3 have NDCG 1 and 1/2: the older model loses half of it on the second target."""
    sums = sums_of()
    for _ in range(5):
        older = {2: (np.array([1, 3, 0]), DAY)}
        sums.add(hours(1, 13, 20), hours(0, 0, 0), np.array([1, 1, 0]), older)
    found = sums.result(horizon=2)
    assert found.half_as_often.difference == pytest.approx(-1 / 3 / 2 / 2)
    assert found.twice_as_often.difference == pytest.approx(1 / 3 / 2 / 2)
    assert found.n_windows == 5
    alone = sums.result(horizon=1)
    assert alone.half_as_often is None
    assert alone.twice_as_often is None
    assert alone.first_half.difference == pytest.approx(1 - 2 / 3)
    assert age_conclusion(alone)[0].endswith("NDCG@10 is 0.3333 above its mean.")
    assert [*alone.figures] == [f"first_half_ndcg_at_10{end}" for end in ("", "_low", "_high")]
    assert found.figures == {
        "half_as_often_ndcg_at_10": pytest.approx(-1 / 12),
        "half_as_often_ndcg_at_10_low": pytest.approx(-1 / 12),
        "half_as_often_ndcg_at_10_high": pytest.approx(-1 / 12),
        "twice_as_often_ndcg_at_10": pytest.approx(1 / 12),
        "twice_as_often_ndcg_at_10_low": pytest.approx(1 / 12),
        "twice_as_often_ndcg_at_10_high": pytest.approx(1 / 12),
        **alone.figures,
    }


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from([DAY, HOUR, 240_000_000]))
def test_groups_are_parts_of_the_whole(seed, n, length):
    random = np.random.default_rng(seed)
    names = metric_names([5, 10])
    sums, every, own = sums_of(tick=length // 4, length=length, names=names), [], []
    for _ in range(3):
        ranks = random.integers(0, 20, (2, n))
        ages = random.integers(0, length, n)
        sums.add(ages, ages % (length // 4), ranks[0], {2: (ranks[1], length)})
        every.append(ranks)
        own.append(ranks[0])
    found = sums.result(horizon=2)
    for since, expected in (("fit", np.concatenate(every, axis=None)), ("tick", np.ravel(own))):
        groups = found.since(since)
        assert sum(group.n_targets for group in groups) == len(expected)
        for name in names:
            total = sum(group.n_targets * group.metrics[name] for group in groups)
            assert total == pytest.approx(target_metric(name, expected).sum())
        assert all(0 < group.n_windows <= 3 for group in groups)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(groups))


def test_the_table_reads_back(tmp_path):
    sums = sums_of(tick=HOUR)
    sums.add(hours(0.5, 1, 1.25), hours(0.5, 0, 0.25), np.array([1, 0, 3]), {})
    found = sums.result(horizon=1)
    write_staleness(tmp_path, found)
    with (tmp_path / STALENESS).open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["since", "from_hours", "to_hours", "n_windows", "n_targets", *NAMES]
    values = [[row[0], *map(float, row[1:])] for row in rows]
    assert values == [
        [g.since, g.start, g.end, g.n_windows, g.n_targets, *g.metrics.values()]
        for g in found.groups
    ]


def simulated(seed, slope, *, n_windows=20, n=400, by_day=0.0):
    """Ageing of a model that finds a target at rank 1 or not at all.

    It finds a share that falls by `slope` in the length of a window, whatever the age, and is
    higher by `by_day` at most in the morning than in the evening.
    """
    random = np.random.default_rng(seed)
    sums = sums_of()
    for level in random.normal(0.5, 0.05, n_windows):
        ages = np.sort(random.integers(0, DAY, n))
        luck = random.random(n)
        share = level - slope * ages / DAY + by_day * (0.5 - ages / DAY)
        # The fit before it knows less of the same targets, and has luck of its own with some.
        other = np.where(random.random(n) < 0.3, random.random(n), luck)
        ranks = [(luck < share).astype(int), (other < share - slope).astype(int)]
        sums.add(ages, ages * 0, ranks[0], {2: (ranks[1], DAY)})
    return sums


@pytest.mark.long
def test_a_known_slope_is_recovered():
    """Mean ages are T/2, T and T/4: half as often costs slope / 2, twice brings slope / 4."""
    slope, inside, values = 0.08, np.zeros(2), []
    for seed in range(200):
        found = simulated(seed, slope).result(horizon=2)
        tests = found.half_as_often, found.twice_as_often
        truth = -slope / 2, slope / 4
        inside += [t.ci95[0] <= true <= t.ci95[1] for t, true in zip(tests, truth, strict=True)]
        values.append([test.difference for test in tests])
    assert np.mean(values, axis=0) == pytest.approx(truth, abs=0.001)
    assert (inside / 200 > 0.9).all()
    sentence, figures = age_conclusion(found)
    assert sentence == (
        f"Fitting half as often would cost {-values[-1][0]:.4f} NDCG@10; twice as often would "
        f"bring {values[-1][1]:.4f} NDCG@10."
    )
    assert "over 20 windows" in figures


@pytest.mark.long
def test_without_ageing_the_sentence_says_no_difference():
    expected = "Fitting half as often, or twice as often, would make no clear difference to NDCG@10"
    said = [age_conclusion(simulated(s, 0, n=100).result(horizon=2))[0] for s in range(200)]
    assert np.mean([each == f"{expected}." for each in said]) > 0.88


def test_the_time_of_day_is_taken_for_age_only_without_a_horizon():
    sums = simulated(0, 0.0, by_day=0.3)
    assert "no clear difference" in age_conclusion(sums.result(horizon=2))[0]
    sentence, figures = age_conclusion(sums.result(horizon=1))
    assert sentence.startswith("In the first half of the time since the last fit NDCG@10 is 0.0")
    assert sentence.endswith("above its mean.")
    assert "if the time of day made no difference; evaluation.horizon: 2 tells" in figures


@pytest.mark.parametrize("horizon", [1, 2])
def test_four_windows_give_no_sentence(horizon):
    found = simulated(0, 0.2, n_windows=4).result(horizon)
    assert age_conclusion(found) is None
    assert found.figures == {}
    assert age_conclusion(simulated(0, 0.2, n_windows=5).result(horizon)) is not None
