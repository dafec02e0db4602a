"""The report with other runs beside it."""

import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.aggregate.stage import aggregate
from dayahead.comparison.beside import page_beside
from dayahead.core.errors import ComparisonError
from dayahead.outputs.tables import write_ranks
from support.project_copy import ROOT
from support.results_folders import (
    CUTOFFS,
    DAYS,
    SETTINGS,
    window_ranks,
    write_results,
    write_run_folders,
)


@pytest.fixture
def folders(tmp_path):
    return write_run_folders(tmp_path)


@pytest.fixture
def other(tmp_path):
    """Results of a run that is better in every window."""
    better = {window: [1, 0, 1, 1] for window in DAYS}
    return write_results(tmp_path / "other" / "results", better)


@pytest.mark.slow
def test_another_run_is_compared_as_a_baseline_is(folders, other):
    page = page_beside(folders, CUTOFFS, SETTINGS, {"HEAD": other})
    assert "gpt2 is below HEAD in these windows." in page
    assert "gpt2 is above popularity in these windows." in page
    assert ">HEAD</text>" in page
    assert "gpt2 &minus; HEAD" in page
    own = np.mean([[1 / np.log2(1 + r) if r else 0 for r in ranks] for ranks in DAYS.values()])
    assert f"NDCG@20 is {own:.4f} against 0.7500, higher in 0 of 6." in page


@pytest.mark.long
def test_without_others_it_is_the_report(folders):
    aggregate(folders, CUTOFFS, SETTINGS)
    page = page_beside(folders, CUTOFFS, SETTINGS, {})
    assert page == (folders.results / "report.html").read_text()


@pytest.mark.slow
def test_the_other_run_may_have_other_cutoffs(folders, other):
    table = (other / "windows.csv").read_text()
    (other / "windows.csv").write_text(table.replace("_at_20", "_at_50"))
    assert "below HEAD" in page_beside(folders, CUTOFFS, SETTINGS, {"HEAD": other})


def test_a_run_on_other_targets_is_refused(folders, other):
    write_ranks(other, "2019-10-05", window_ranks([1, 0, 1, 1], targets=[2, 9, 4, 5]))
    message = r"^results/ and HEAD were evaluated on different targets in 1 of 6 windows"
    with pytest.raises(ComparisonError, match=message):
        page_beside(folders, CUTOFFS, SETTINGS, {"HEAD": other})


@pytest.mark.parametrize("name", ["gpt2", "transitions"])
def test_a_run_named_as_another_row_of_the_page_is_refused(folders, other, name):
    with pytest.raises(ComparisonError, match=f"^{name}: the page has a row of this name"):
        page_beside(folders, CUTOFFS, SETTINGS, {name: other})


@pytest.mark.long
def test_the_command_writes_the_page(folders, other, tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    output = tmp_path / "pages" / "page.html"
    done = CliRunner().invoke(app, ["report", str(other.parent), "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert f"memory is below {other.parent} in these windows." in output.read_text()
    done = CliRunner().invoke(app, ["report", "a,,b"])
    assert str(done.exception).startswith("'a,,b': expected different runs")
