"""lists.csv of whole studies equals what the predictions of the same studies give."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from dayahead.config.metric_names import OF_LISTS
from dayahead.core.errors import ConfigError
from dayahead.outputs.lists import read_lists, read_shown
from dayahead.windows.folder import WindowFolder
from support.list_oracle import Lists, oracle
from support.listed_items import Row, add_items
from support.live_windows import LIVE, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.window_folders import bytes_in, day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=10, n_items=16)
LENGTH = 5
WITH_LISTS = {
    "evaluation": {
        "split": "test", "cutoffs": [1, 3, 9], "lists": LENGTH, "predictions": LENGTH,
        "diversity_by": "category",
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
        attribute={item: item % 3 for item in items},
        candidates=items,
    )


def clicks_of(results, number):
    """The same with the targets in place of the lists."""
    lists = lists_of(results, number)
    table = pq.read_table(results / "predictions" / f"{day(number)}.parquet").to_pydict()
    return Lists(**{**vars(lists), "shown": [[item] for item in table["target_item"]]})


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "fewer kept than shown"])
def test_the_table_equals_what_the_predictions_give(results_of, name):
    rows = read_lists(results_of(name))
    assert [row.window for row in rows] == [day(1), day(2), day(3)]
    for number, row in enumerate(rows, start=1):
        lists, clicks = lists_of(results_of(name), number), clicks_of(results_of(name), number)
        of_clicks = oracle(clicks, 1)
        assert row.n_lists == len(lists.shown)
        for k in (1, 3):
            expected = oracle(lists, k)
            if name == "ticks":  # items of the day are candidates, too
                del expected["coverage"], expected["gini"]
            ratio = expected["popularity"] / of_clicks["popularity"]
            expected["popularity_ratio"] = pytest.approx(ratio, rel=1e-9)
            found = {metric: row.figures[f"{metric}_at_{k}"] for metric in expected}
            assert found == pytest.approx(expected, abs=1e-12)
        for metric in ("novelty", "popularity", "new", "own"):
            assert row.figures[f"clicked_{metric}"] == pytest.approx(of_clicks[metric], abs=1e-12)


def test_repeats_are_those_of_the_window_before(results_of):
    first, *rows = read_lists(results_of("network"))
    assert first.figures["repeats_at_3"] is None
    for number, row in enumerate(rows, start=2):
        before, now = (lists_of(results_of("network"), n).shown for n in (number - 1, number))
        had = {item for each in before for item in each[:3]}
        places = [item in had for each in now for item in each[:3]]
        assert row.figures["repeats_at_3"] == sum(places) / len(places)


def test_columns_are_those_of_the_cutoffs_within_the_lists(results_of):
    names = [*read_lists(results_of("network"))[0].figures]
    ks = [int(name.split("_at_")[1]) for name in names if "_at_" in name]
    assert {*ks} == {1, 3}
    assert len(ks) == 2 * len(OF_LISTS)


def test_shown_counts_each_place(windows, results_of):
    results = results_of("network")
    raw = WindowFolder(windows).vocabulary("item_id")["value"].to_pylist()
    shown, lists = read_shown(results, day(2)), lists_of(results, 2).shown
    assert (shown.n_lists, shown.length) == (len(lists), LENGTH)
    for item, counts in zip(shown.items, shown.counts.tolist(), strict=True):
        places = [sum(each[n] == raw[item - 2] for each in lists) for n in range(LENGTH)]
        assert counts == places


def test_nothing_else_depends_on_the_lists(windows, results_of, tmp_path):
    """Without them the other files are the same, byte for byte, and there are no rows."""
    without = {"evaluation": WITH_LISTS["evaluation"] | {"lists": 0}}
    results = train_study(windows, tmp_path / "out", without) / "results"
    assert read_lists(results) == []
    left_out = ("lists.csv", "timing.csv", "shown/", "phases/")
    files, others = (
        {name: text for name, text in bytes_in(folder).items() if not name.startswith(left_out)}
        for folder in (results, results_of("network"))
    )
    assert files == others
    assert [path.name for path in (results / "shown").iterdir()] == ["README.txt"]


def test_lists_need_no_predictions(results_of):
    kept, counted = (results_of(name) for name in ("network", "fewer kept than shown"))
    assert (kept / "lists.csv").read_bytes() == (counted / "lists.csv").read_bytes()


def test_diversity_needs_a_categorical_feature(windows, tmp_path):
    other = merge_sections(WITH_LISTS, evaluation={"diversity_by": "price"})
    with pytest.raises(ConfigError, match=r"price: no categorical feature .* of category$"):
        train_study(windows, tmp_path, other)


def test_diversity_by_the_vectors_of_the_items_table(tmp_path):
    """Of lists.csv: that of predictions/, by the newest vectors known after the fit."""
    folder = write_window_folder(tmp_path / "windows", DAYS, features=True)
    random = np.random.default_rng(2)
    items = sorted({item for day in DAYS for session in day for item in session})
    rows = [
        Row(item, random.normal(size=3).tolist(), day=number)
        for item in items[:9]
        for number in (0, 2)
    ]
    add_items(folder, rows)
    by_title = merge_sections(WITH_LISTS, evaluation={"diversity_by": "title"})
    results = train_study(folder, tmp_path / "out", by_title) / "results"
    for number, row in enumerate(read_lists(results), start=1):
        known = {each.item: np.float32(each.vector).tolist() for each in rows if each.day < number}
        lists = replace(lists_of(results, number), vectors=known)
        for k in (1, 3):
            expected = pytest.approx(oracle(lists, k)["diversity"], abs=1e-9)
            assert row.figures[f"diversity_at_{k}"] == expected
    wrong = merge_sections(WITH_LISTS, evaluation={"diversity_by": "titel"})
    with pytest.raises(ConfigError, match=r"did you mean title\? expected some of category, title"):
        train_study(folder, tmp_path / "wrong", wrong)


def test_lists_of_fewer_candidates_than_asked_for_are_shorter(windows, tmp_path):
    more = merge_sections(WITH_LISTS, evaluation={"lists": 40, "cutoffs": [15, 40]})
    results = train_study(windows, tmp_path, more) / "results"
    for number, row in enumerate(read_lists(results), start=1):
        n_candidates = len({item for day in DAYS[:number] for session in day for item in session})
        assert read_shown(results, row.window).length == n_candidates <= 16
        assert row.figures["coverage_at_40"] == 1
