"""lists.csv of whole studies equals what the predictions of the same studies give."""

import pyarrow.parquet as pq
import pytest

from dayahead.config.metric_names import OF_LISTS
from dayahead.outputs.lists import read_lists
from support.list_oracle import Lists, oracle
from support.live_windows import LIVE, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.window_folders import bytes_in, day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=10, n_items=16)
LENGTH = 5
WITH_LISTS = {
    "evaluation": {
        "split": "test", "cutoffs": [1, 3, 9], "lists": LENGTH, "predictions": LENGTH,
    }
}  # fmt: skip
STUDIES = {
    "network": {},
    "baseline": {"model": {"architecture": "transitions"}},
    "own items first": {"model": {"architecture": "own", "remind": "first"}},
    "memory": {"model": {"architecture": "memory"}},
    "ticks": LIVE,
    "all positions": {"evaluation": {"positions": "all"}},
    "fewer kept than shown": {"evaluation": {"predictions": 0}},
}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    return spread_sessions(write_window_folder(folder, DAYS, features=True))


@pytest.fixture(scope="module")
def results_of(windows, tmp_path_factory):
    """Return a function that trains a study, once, and returns its results folder."""
    found = {}

    def train(name):
        if name not in found:
            out = tmp_path_factory.mktemp("out")
            sections = merge_sections(WITH_LISTS, **STUDIES[name])
            found[name] = train_study(windows, out, sections) / "results"
        return found[name]

    return train


def lists_of(results, number):
    """The lists of a day, as predictions/ holds them, and all that came before them."""
    table = pq.read_table(results / "predictions" / f"{day(number)}.parquet").to_pydict()
    ends = table.get("position", [-1] * len(table["session_id"]))
    sessions = [
        DAYS[number][int(name[2:])][:end]
        for name, end in zip(table["session_id"], ends, strict=True)
    ]
    history = [session for sessions in DAYS[:number] for session in sessions]
    items = {item for session in history for item in session}
    return Lists(
        shown=table["items"],
        sessions=sessions,
        history=history,
        newest=len(DAYS[number - 1]),
        candidates=items,
    )


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "fewer kept than shown"])
def test_the_table_equals_what_the_predictions_give(results_of, name):
    rows = read_lists(results_of(name))
    assert [row.window for row in rows] == [day(1), day(2), day(3)]
    for number, row in enumerate(rows, start=1):
        lists = lists_of(results_of(name), number)
        assert row.n_lists == len(lists.shown)
        for k in (1, 3):
            expected = oracle(lists, k)
            if name == "ticks":  # items of the day are candidates, too
                del expected["coverage"], expected["gini"]
            found = {metric: row.figures[f"{metric}_at_{k}"] for metric in expected}
            assert found == pytest.approx(expected, abs=1e-12)


def test_columns_are_those_of_the_cutoffs_within_the_lists(results_of):
    names = [*read_lists(results_of("network"))[0].figures]
    ks = [int(name.split("_at_")[1]) for name in names if "_at_" in name]
    assert {*ks} == {1, 3}
    assert len(ks) == 2 * len(OF_LISTS)


def test_nothing_else_depends_on_the_lists(windows, results_of, tmp_path):
    """Without them the other files are the same, byte for byte, and there are no rows."""
    without = {"evaluation": WITH_LISTS["evaluation"] | {"lists": 0}}
    results = train_study(windows, tmp_path / "out", without) / "results"
    assert read_lists(results) == []
    left_out = ("lists.csv", "timing.csv", "phases/")
    files, others = (
        {name: text for name, text in bytes_in(folder).items() if not name.startswith(left_out)}
        for folder in (results, results_of("network"))
    )
    assert files == others


def test_lists_need_no_predictions(results_of):
    kept, counted = (results_of(name) for name in ("network", "fewer kept than shown"))
    assert (kept / "lists.csv").read_bytes() == (counted / "lists.csv").read_bytes()


def test_lists_of_fewer_candidates_than_asked_for_are_shorter(windows, tmp_path):
    more = merge_sections(WITH_LISTS, evaluation={"lists": 40, "cutoffs": [15, 40]})
    results = train_study(windows, tmp_path, more) / "results"
    for row in read_lists(results):
        assert row.figures["coverage_at_40"] == 1
