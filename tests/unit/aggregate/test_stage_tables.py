"""Tables of segments and of lists, as the stage writes them."""

import json

import pytest

from dayahead.aggregate.stage import aggregate
from dayahead.outputs.tables import write_evidence
from support.results_folders import CUTOFFS, DAYS, SETTINGS, write_lists, write_run_folders


def run(folders, changes=None):
    aggregate(folders, CUTOFFS, SETTINGS | (changes or {}))
    return folders.results


@pytest.mark.long
def test_segments_have_a_table_and_a_file(tmp_path):
    """The same four users come every day, also on the one before the first evaluation."""
    folders = write_run_folders(tmp_path)
    results = run(folders)
    assert (results / "segments.csv").read_text().splitlines()[1:] == []
    run(folders, {"evaluation.segments": ("user",)})
    _, *rows = (results / "segments.csv").read_text().splitlines()
    assert [row.split(",")[:5] for row in rows[:2]] == [
        ["2019-10-02", "user", "returning", "4", "0.75"],
        ["2019-10-03", "user", "returning", "4", "0.75"],
    ]
    assert len(rows) == 6
    page = (results / "report.html").read_text()
    assert "<caption>Users</caption>" in page
    assert '<th scope="row">returning</th><td class="n">24' in page


@pytest.mark.long
def test_the_report_says_what_the_lists_show(tmp_path):
    folders = write_run_folders(tmp_path)
    results = run(folders)
    assert "What the lists show" not in (results / "report.html").read_text()
    figures = {"coverage_at_10": 0.4, "own_at_10": 0.2, "diversity_at_10": 0.3, "clicked_own": 0.1}
    write_lists(results, dict.fromkeys(DAYS, figures))
    run(folders, {"evaluation.diversity_by": "brand<i>"})
    page = (results / "report.html").read_text()
    assert "lists of 10 show 40.0 % of the items" in page
    assert "Difference of pairs in brand&lt;i&gt; (diversity)" in page
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
