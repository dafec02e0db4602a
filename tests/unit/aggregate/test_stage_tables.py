"""What the report says of lists and evidence."""

import json

import pytest

from dayahead.aggregate.stage import aggregate
from dayahead.outputs.tables import write_evidence
from support.results_folders import CUTOFFS, DAYS, SETTINGS, write_lists, write_run_folders


def run(folders, changes=None):
    aggregate(folders, CUTOFFS, SETTINGS | (changes or {}))
    return folders.results


@pytest.mark.long
def test_the_report_says_what_the_lists_show(tmp_path):
    folders = write_run_folders(tmp_path)
    results = run(folders)
    assert "What the lists show" not in (results / "report.html").read_text()
    values = {
        "coverage": 0.4,
        "gini": 0.5,
        "novelty": 3.0,
        "popularity": 0.1,
        "new": 0.1,
        "own": 0.2,
    }
    figures = {f"{name}_at_10": value for name, value in values.items()}
    write_lists(results, dict.fromkeys(DAYS, figures))
    run(folders)
    page = (results / "report.html").read_text()
    assert "lists of 10 show 40.0 % of the items" in page
    assert "Concentration on few items (Gini index)" in page
    content = json.loads((results / "lists.json").read_text())
    assert list(content) == ["aod", "ci95", "n_windows"]
    assert content["aod"] == pytest.approx(figures)


@pytest.mark.long
def test_evidence_has_plain_names_above_those_of_programs(tmp_path):
    folders = write_run_folders(tmp_path)
    write_evidence(folders.results / "evidence.csv", {"pair.next.4": 0.5, "mine.weather": -0.25})
    page = (run(folders) / "report.html").read_text()
    named = "often clicked right after (half-life 4 windows)"
    assert f'<th scope="row">{named}<span class="under">pair.next.4</span></th>' in page
    assert '<th scope="row">mine.weather</th>' in page


@pytest.mark.long
def test_the_result_begins_in_plain_words(tmp_path):
    page = (run(write_run_folders(tmp_path)) / "report.html").read_text()
    answer, _, _ = page.partition("gpt2 is above popularity")
    assert "gpt2 recommends the next click among its 20 in 75 of 100 sessions" in answer
