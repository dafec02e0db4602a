"""Files of results/ that are missing or damaged: one error that says which, and what to do."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import DataError
from dayahead.outputs.lists import read_lists
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.tables import read_evidence, read_ranks, read_windows
from support.results_folders import CUTOFFS, write_results

WINDOW = "2019-10-02"
OF_BASELINE = "baselines/transitions.parquet"
RANKS = f"ranks/{WINDOW}.parquet"
OWN = {WINDOW: [1, 0, 3]}


@pytest.fixture
def results(tmp_path):
    return write_results(tmp_path / "results", OWN, train_loss=5.5)


READ = {
    "windows.csv": lambda results: read_windows(results / "windows.csv", CUTOFFS),
    "evidence.csv": lambda results: read_evidence(results / "evidence.csv"),
    "lists.csv": read_lists,
    OF_BASELINE: lambda results: read_baseline_ranks(results, "transitions", OWN),
    RANKS: lambda results: read_ranks(results, WINDOW),
}
EXPECTED = {
    "windows.csv": "windows with the metrics at 10, 20",
    "evidence.csv": "the columns feature and weight, a number",
    "lists.csv": "the columns window, n_lists, n_items and figures",
    OF_BASELINE: "ranks by window",
    RANKS: "ranks with the columns session_id, target, rank",
}


def check(results, name):
    with pytest.raises(DataError) as caught:
        READ[name](results)
    message = str(caught.value)
    assert message.startswith(f"{results / name}: expected {EXPECTED[name]} (")
    assert "); run `dvc repro -f train`" in message
    assert "\n" not in message


def test_what_is_whole_is_read(results):
    assert READ["windows.csv"](results)[0].n_sessions == 3
    assert READ["evidence.csv"](results) == {}
    assert READ[OF_BASELINE](results)[WINDOW].tolist() == [5, 0, 7]


@pytest.mark.parametrize("name", READ)
def test_a_missing_file(results, name):
    (results / name).unlink(missing_ok=True)
    check(results, name)


HEAD = "window,n_sessions,target_outside,recall_at_10\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("windows.csv", HEAD),
        ("windows.csv", ""),
        ("windows.csv", f"{HEAD}2019-10-02,4"),
        ("windows.csv", f"{HEAD}2019-10-02,four,0,0,1"),
        ("windows.csv", b"\xff\xfe"),
        ("windows.csv", f"{HEAD}{'9' * 200_000}"),  # a field beyond csv's limit
        ("evidence.csv", ""),
        ("evidence.csv", "feature,weight\nage\n"),
        ("evidence.csv", "feature,weight\nage,much\n"),
        ("lists.csv", ""),
        ("lists.csv", "window,n_lists\n2026-01-02,3\n"),
        ("lists.csv", "window,n_lists,n_items\na,b,c\n"),
        (OF_BASELINE, "no parquet"),
    ],
)
def test_a_damaged_file(results, name, content):
    (results / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    check(results, name)


def test_ranks_that_are_cut_off(results):
    path = results / RANKS
    path.write_bytes(path.read_bytes()[:-20])
    check(results, RANKS)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        (OF_BASELINE, {"rank": ["a", "b", "c"]}),
        (OF_BASELINE, {"rank": [1.5, None, 2]}),
        (OF_BASELINE, {"rank": None}),
        (OF_BASELINE, {"window": None}),
        (RANKS, {"rank": ["a", "b", "c"]}),
        (RANKS, {"rank": None}),  # which would all be misses
    ],
)
def test_other_columns(results, name, columns):
    """None drops a column."""
    table = pq.ParquetFile(results / name).read()
    for column, values in columns.items():
        at = table.column_names.index(column)
        table = table.remove_column(at)
        if values is not None:
            table = table.add_column(at, column, pa.array(values))
    pq.write_table(table, results / name)
    check(results, name)
