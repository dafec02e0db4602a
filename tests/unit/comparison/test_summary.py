"""The summary of a comparison: conclusion, tables and caveats."""

import json
import re

import numpy as np
import pytest

from dayahead.comparison.summary import json_of, summarize
from dayahead.statistics.paired_tests import compare
from support.results_folders import CUTOFFS, write_lists, write_results
from support.simulated_runs import improved


def runs(tmp_path, n_windows, gain, noise, seed=0, n_runs=3):
    """Runs of two settings; B's ranks are A's, better by a factor that varies with the session."""
    random = np.random.default_rng(seed)
    days = [f"2019-10-{day:02d}" for day in range(1, n_windows + 1)]
    shared = {day: random.integers(1, 40, 60) for day in days}

    def run(name, gain):
        return write_results(tmp_path / name, improved(random, shared, gain, noise))

    numbers = range(n_runs)
    return [run(f"a{n}", 0) for n in numbers], [run(f"b{n}", gain) for n in numbers]


def text_of(a, b):
    return re.sub(r"\s+", " ", summarize(compare(a, b, CUTOFFS), "main", "exp-1"))


def test_a_clear_gain(tmp_path):
    a, b = runs(tmp_path, 8, gain=0.4, noise=0.05)
    text = text_of(a, b)
    assert text.startswith("A = main B = exp-1 8 windows, 480 sessions, the same targets")
    assert "B is better: ndcg_at_20 is" in text
    assert "B is better in 8 and worse in 0 of the windows. If the settings were equally" in text
    assert "candidates differ" not in text
    assert "A is better" in text_of(b, a)


def test_programs_get_the_sentence_and_the_numbers_of_the_tables(tmp_path):
    a, b = runs(tmp_path, 8, gain=0.4, noise=0.05)
    comparison = compare(a, b, CUTOFFS)
    found = json.loads(json.dumps(json_of(comparison, "main", "exp-1"), allow_nan=False))
    assert (found["a"], found["b"], found["windows"], found["targets"]) == ("main", "exp-1", 8, 480)
    assert found["conclusion"].startswith("B is better: ndcg_at_20 is")
    assert [*found["metrics"]] == [metric.name for metric in comparison.metrics]
    ndcg = found["metrics"]["ndcg_at_20"]
    assert ndcg["difference"] == pytest.approx(ndcg["b"] - ndcg["a"])
    assert (ndcg["windows_better"], ndcg["windows_worse"]) == (8, 0)
    low, high = ndcg["ci95"]
    assert low < ndcg["difference"] < high


def test_noise_alone(tmp_path):
    text = text_of(*runs(tmp_path, 8, gain=0.0, noise=0.02, seed=1))
    assert "No significant difference" in text


def test_few_windows_tell_nothing(tmp_path):
    text = text_of(*runs(tmp_path, 4, gain=0.4, noise=0.05))
    assert "Not enough windows to tell: ndcg_at_20 is" in text
    assert "is better:" not in text


def test_one_run_of_a_setting_tells_nothing(tmp_path):
    a, b = runs(tmp_path, 8, gain=0.4, noise=0.05)
    text = text_of(a[:1], b[:1])
    assert "Not enough runs to tell: ndcg_at_20 is" in text
    assert "compare A1,A2,A3 B1,B2,B3" in text
    assert "those of these runs over windows; other seeds widen them" in text
    text = text_of(a[:1], b)
    assert "Not enough runs to tell: ndcg_at_20 is" in text
    assert "One setting has a single run" in text
    assert "is better:" not in text


def test_a_run_with_itself(tmp_path):
    a, _ = runs(tmp_path, 6, gain=0.4, noise=0.05)
    assert text_of(a[:1], a[:1]).endswith(
        "The runs are equal: every target has the same rank in all of them. "
    )


def test_different_candidates_are_mentioned(tmp_path):
    a = write_results(tmp_path / "a", {"2019-10-02": [1, 0, 3]})
    b = write_results(tmp_path / "b", {"2019-10-02": [1, 9, 3]})
    assert "1 targets are not among A's and 0 not among B's" in text_of([a], [b])


@pytest.mark.parametrize("n_windows", [2, 6])
def test_columns_are_aligned(tmp_path, n_windows):
    text = summarize(compare(*runs(tmp_path, n_windows, gain=0.4, noise=0.05), CUTOFFS))
    for table in re.findall(r"(?:^(?:metric|\w+_at_\d+) .*\n?)+", text, re.M):
        assert len({len(line) for line in table.splitlines()}) == 1
    assert max(map(len, text.splitlines())) <= 110


def test_what_the_lists_show_is_compared_by_windows(tmp_path):
    """A's novelty is that of the window, B's one bit more."""
    a, b = runs(tmp_path, 8, gain=0.4, noise=0.05, n_runs=1)
    days = [f"2019-10-{day:02d}" for day in range(1, 9)]
    for (folder,), more in ((a, 0.0), (b, 1.0)):
        figures = {day: {"novelty_at_10": n + more} for n, day in enumerate(days)}
        write_lists(folder, figures)
    compared = compare(a, b, CUTOFFS)
    [novelty] = compared.lists
    assert (novelty.name, novelty.a, novelty.b) == ("novelty_at_10", 3.5, 4.5)
    assert novelty.test.ci95 == (1, 1)
    text = text_of(a, b)
    assert (
        "What the lists show, over 8 windows metric A B B - A 95 % interval novelty_at_10" in text
    )
    assert "novelty_at_10 3.5000 4.5000 +1.0000 +1.0000 to +1.0000" in text


def test_lists_are_compared_where_all_runs_have_them(tmp_path):
    a, b = runs(tmp_path, 5, gain=0.4, noise=0.05, n_runs=1)
    figures = {f"2019-10-0{day}": {"novelty_at_10": 1.0} for day in range(1, 6)}
    write_lists(a[0], figures)
    assert compare(a, b, CUTOFFS).lists == ()
    (b[0] / "lists.csv").unlink()
    assert compare(a, b, CUTOFFS).lists == ()
    write_lists(b[0], figures)
    assert [each.test.difference for each in compare(a, b, CUTOFFS).lists] == [0]
    assert "What the lists show" in text_of(a, b)
