"""Files of results/ that were damaged: one error that says which, and what to do."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import DataError
from dayahead.outputs.examples import read_examples
from dayahead.outputs.losses import read_losses
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.tables import (
    baseline_path,
    ranks_path,
    read_evidence,
    read_ranks,
    read_windows,
)
from support.results_folders import CUTOFFS, write_results

WINDOW = "2019-10-02"


@pytest.fixture
def results(tmp_path):
    return write_results(tmp_path / "results", {WINDOW: [1, 0, 3]}, train_loss=5.5)


def check(path, read, expected):
    with pytest.raises(DataError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(f"{path}: expected {expected} (")
    assert "); run `dvc repro -f train`" in message
    assert "\n" not in message


def test_what_is_whole_is_read(results):
    assert read_windows(results / "windows.csv", CUTOFFS)[0].n_sessions == 3
    assert read_evidence(results / "evidence.csv") == {}
    assert read_losses(results) == {WINDOW: [(4, 6.5), (8, 5.5)]}
    assert read_examples(results, WINDOW)[0].recommended == [3, 2]
    own = {WINDOW: read_ranks(results, WINDOW).ranks}
    assert read_baseline_ranks(results, "transitions", own)[WINDOW].tolist() == [5, 0, 7]


HEAD = "window,n_sessions,target_outside,recall_at_10\n"


@pytest.mark.parametrize(
    "content",
    [
        HEAD,
        "",
        f"{HEAD}2019-10-02,4",
        f"{HEAD}2019-10-02,four,0,0,1",
        b"\xff\xfe",
        f"{HEAD}{'9' * 200_000}",  # a field beyond csv's limit
    ],
)
def test_windows(results, content):
    path = results / "windows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    check(path, lambda: read_windows(path, CUTOFFS), "windows with the metrics at 10, 20")


@pytest.mark.parametrize("rows", [None, "", "feature,weight\nage\n", "feature,weight\nage,much\n"])
def test_evidence(results, rows):
    path = results / "evidence.csv"
    path.unlink()
    if rows is not None:
        path.write_text(rows)
    check(path, lambda: read_evidence(path), "the columns feature and weight, a number")


@pytest.mark.parametrize(
    "content", ["window,step\nw,1\n", "window,step,loss\nw,1\n", "window,step,loss\nw,1,low\n"]
)
def test_losses(results, content):
    path = results / "losses.csv"
    path.write_text(content)
    check(path, lambda: read_losses(results), "the columns window, step, loss")


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"window": WINDOW, "examples": [{"row": "a", "recommended": []}]},
        {"window": WINDOW, "examples": [{"row": -1, "recommended": []}]},
        {"window": WINDOW, "examples": [{"row": 1, "recommended": [2.5]}, {"row": 0}]},
        {"window": 3, "examples": []},
    ],
)
def test_examples(results, content):
    path = results / "examples.json"
    for text in (json.dumps(content), json.dumps(content)[:-1]):
        path.write_text(text)
        check(path, lambda: read_examples(results, WINDOW), "a window and its examples")


def test_examples_of_another_window(results):
    message = re.escape(f"expected examples of 2019-10-03, found those of {WINDOW}")
    with pytest.raises(DataError, match=message):
        read_examples(results, "2019-10-03")


def replace(path, **columns):
    """Change columns of a parquet file; None drops one."""
    table = pq.ParquetFile(path).read()
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.remove_column(at)
        if values is not None:
            table = table.add_column(at, name, pa.array(values))
    pq.write_table(table, path)


@pytest.mark.parametrize(
    "columns",
    [{"rank": ["a", "b", "c"]}, {"rank": [1.5, None, 2]}, {"rank": None}, {"window": None}],
)
def test_ranks_of_a_baseline(results, columns):
    path = baseline_path(results, "transitions").with_suffix(".parquet")
    own = {WINDOW: read_ranks(results, WINDOW).ranks}
    replace(path, **columns)
    check(path, lambda: read_baseline_ranks(results, "transitions", own), "ranks by window")


@pytest.mark.parametrize("columns", [{"rank": ["a", "b", "c"]}, {"target": None}])
def test_ranks(results, columns):
    path = ranks_path(results, WINDOW)
    replace(path, **columns)
    expected = "ranks with the columns session_id, target, rank"
    check(path, lambda: read_ranks(results, WINDOW), expected)
