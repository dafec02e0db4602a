"""`dvc repro` as the README says it, and again after a change."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from oracles.protocol import expected_aod, expected_ranks

METRICS = [(name, cutoff) for name in ("recall", "ndcg", "mrr") for cutoff in (10, 20)]


def ranks_in(project):
    """Rank of every session by window, 0 for a miss."""
    found = {}
    for path in sorted((project.folder / "results" / "ranks").glob("*.parquet")):
        table = pq.ParquetFile(path).read()
        ranks = [rank or 0 for rank in table["rank"].to_pylist()]
        found[path.stem] = dict(zip(table["session_id"].to_pylist(), ranks, strict=True))
    return found


def fitted(project):
    """The fits that are cached."""
    return {path.name for path in (project.folder / ".dayahead" / "fits").iterdir()}


def test_a_clone_reproduces_the_aod_of_the_protocol(first_run):
    project, _ = first_run
    windows, results = project.folder / "data" / "windows", project.folder / "results"
    ranks = expected_ranks(windows, "transitions")
    assert len(ranks) == 2
    assert ranks_in(project) == ranks
    aod = json.loads((results / "aod.json").read_text())
    for name, cutoff in METRICS:
        expected = expected_aod(ranks, name, cutoff)
        assert aod["aod"][f"{name}_at_{cutoff}"] == pytest.approx(expected, abs=1e-12)
    for method in ("popularity", "own"):
        text = (results / "baselines" / f"{method}.csv").read_text()
        rows = list(csv.DictReader(text.splitlines()))
        values = [float(row["ndcg_at_20"]) for row in rows]
        expected = expected_aod(expected_ranks(windows, method), "ndcg", 20)
        assert sum(values) / len(values) == pytest.approx(expected, abs=1e-12)


@pytest.mark.walk
def test_another_evaluation_repeats_no_fit(project):
    before = fitted(project)
    project.change({"evaluation": {"cutoffs": [5, 20]}})
    output = project.run("dvc", "repro")
    assert "Running stage 'train'" in output
    assert "Running stage 'preprocess'" not in output
    assert fitted(project) == before
    aod = json.loads((project.folder / "results" / "aod.json").read_text())["aod"]
    ranks = expected_ranks(project.folder / "data" / "windows", "transitions")
    assert aod["ndcg_at_5"] == pytest.approx(expected_aod(ranks, "ndcg", 5), abs=1e-12)


@pytest.mark.walk
def test_one_more_day_changes_nothing_of_the_days_before(project):
    before = ranks_in(project)
    project.set_log(4, 60)
    project.run("dvc", "repro")
    after = ranks_in(project)
    assert len(after) == len(before) + 1
    assert after == expected_ranks(project.folder / "data" / "windows", "transitions")


@pytest.mark.walk
def test_an_experiment_is_compared_with_the_run_before_it(project):
    project.run("git", "add", "--all")
    project.run("git", "commit", "-qm", "run")
    before = json.loads((project.folder / "results" / "aod.json").read_text())["aod"]
    project.run("dvc", "exp", "run", "--temp", "-n", "decayed", "-S", "model.decay=0.5")
    shown = project.run("dvc", "exp", "show", "--csv")
    [row] = [row for row in csv.DictReader(shown.splitlines()) if row["Experiment"] == "decayed"]
    assert row["model.decay"] == "0.5"
    assert json.loads((project.folder / "results" / "aod.json").read_text())["aod"] == before
