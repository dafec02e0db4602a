"""Metrics by segment equal those of plain Python."""

import csv
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from dayahead.aggregate import segments as module
from dayahead.aggregate.segments import Segments, write_segments
from dayahead.core.errors import ConfigError
from dayahead.windows.folder import WindowFolder
from support.live_windows import replaced, rewrite
from support.results_folders import window_ranks
from support.typed_windows import add_types, drawn_type
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=7, sessions_per_day=9, n_items=20)
METRICS = ["recall_at_5", "ndcg_at_5", "mrr_at_5"]


def user_of(number, row):
    """Every third session has no user; the others' users come back every few days."""
    return None if row % 3 == 2 else f"u{(number * 4 + row) % 17}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)
    for file in path.glob("session_start*.parquet"):
        numbers = [
            [int(part) for part in name.split("-")]
            for name in pq.read_table(file, partitioning=None)["session_id"].to_pylist()
        ]
        users = [user_of(*each) for each in numbers]
        rewrite(file, lambda table, users=users: replaced(table, "user_id", users))
    return WindowFolder(path)


def ranks_of(number, *, is_all):
    """Random ranks of the targets of a day, and session and step of the click before each."""
    draw = np.random.default_rng(number)
    before = [
        (row, step)
        for row, session in enumerate(DAYS[number])
        for step in (range(len(session) - 1) if is_all else [len(session) - 2])
    ]
    ids = [f"{number}-{row:06d}" for row, _ in before]
    positions = [step + 1 for _, step in before] if is_all else None
    ranks = draw.integers(0, 9, len(before)).tolist()
    return window_ranks(ranks, [2] * len(ranks), ids, positions), before


def summed(folder, names, *, is_all=False):
    found = Segments(folder, names, METRICS, "ndcg_at_5")
    for number, window in enumerate(folder.windows):
        if number:
            ranks, _ = ranks_of(number, is_all=is_all)
            found.add(window, "train", ranks, [np.where(ranks.ranks, 1, 0)])
        found.see(window)
    return found


def user_kind(number, row, _step):
    user = user_of(number, row)
    earlier = {user_of(n, r) for n in range(number) for r in range(len(DAYS[n]))}
    return "(unknown)" if user is None else "returning" if user in earlier else "new"


def category(number, row, step):
    return str(DAYS[number][row][step] % 3)


def target_type(number, row, step):
    return drawn_type(f"{number}-{row:06d}", step + 1)


def gains(rank):
    found = 0 < rank <= 5
    return [float(found), found and 1 / math.log2(1 + rank), found and 1 / rank]


def assert_rows(found, segment, value_of, *, is_all):
    """Compare with plain Python; `value_of` a day, a session and the step before a target."""
    expected = {}
    for number in range(1, len(DAYS)):
        ranks, before = ranks_of(number, is_all=is_all)
        for rank, (row, step) in zip(ranks.ranks.tolist(), before, strict=True):
            key = day(number), segment, value_of(number, row, step)
            expected.setdefault(key, []).append(gains(rank))
    rows = list(found.rows())
    assert {row[:3]: row.n_targets for row in rows} == {k: len(v) for k, v in expected.items()}
    for row in rows:
        assert row.metrics == pytest.approx(np.mean(expected[row[:3]], axis=0))


@pytest.mark.parametrize("is_all", [False, True])
@pytest.mark.parametrize(("segment", "value_of"), [("user", user_kind), ("category", category)])
def test_rows_equal_those_of_plain_python(folder, segment, value_of, is_all):
    assert_rows(summed(folder, [segment], is_all=is_all), segment, value_of, is_all=is_all)


def test_the_table_of_the_report_has_the_means_over_all_windows(folder):
    [slicing] = summed(folder, ["user"]).slicings(["always right"])
    rows = [row for row in summed(folder, ["user"]).rows() if row.value == "returning"]
    n = sum(row.n_targets for row in rows)
    returning = next(each for each in slicing.slices if each.label == "returning")
    mean = sum(row.n_targets * row.metrics[1] for row in rows) / n
    assert (slicing.title, returning.n_targets) == ("Users", n)
    assert returning.value == pytest.approx(mean)
    difference = returning.tests["always right"].difference
    assert difference == pytest.approx(mean - returning.others["always right"])
    assert sum(each.share for each in slicing.slices) == pytest.approx(1)


def test_rare_values_are_a_group_together(folder, monkeypatch):
    every = list(summed(folder, ["category"]).rows())
    monkeypatch.setattr(module, "N_VALUES", 1)
    rows = list(summed(folder, ["category"]).rows())
    totals = {}
    for row in every:
        totals[row.value] = totals.get(row.value, 0) + row.n_targets
    largest = min(totals, key=lambda value: (-totals[value], value))
    assert {row.value for row in rows} == {largest, "(others)"}
    for window in {row.window for row in rows}:
        counts = [sum(r.n_targets for r in of if r.window == window) for of in (rows, every)]
        assert counts[0] == counts[1]


def test_the_values_kept_have_most_targets_over_all_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "N_VALUES", 1)
    days = [[[3, 6]] * 2, [[3, 6]] * 2 + [[1, 4]] * 4 + [[2, 5]], [[3, 6]] * 2, [[3, 6]] * 2]
    folder = WindowFolder(write_window_folder(tmp_path, days, features=True))
    found = Segments(folder, ["category"], METRICS, "ndcg_at_5")
    for number, window in enumerate(folder.windows):
        ids = [f"{number}-{row:06d}" for row, _ in enumerate(days[number])]
        ranks = window_ranks([1] * len(ids), [2] * len(ids), ids)
        found.add(window, "train", ranks, [ranks.ranks])
    assert [(row.window, row.value, row.n_targets) for row in found.rows()] == [
        (day(0), "0", 2), (day(1), "0", 2), (day(1), "(others)", 5), (day(2), "0", 2),
        (day(3), "0", 2),
    ]  # fmt: skip


def test_the_file_has_a_row_for_each_window_and_value(folder, tmp_path):
    rows = list(summed(folder, ["user", "category"]).rows())
    write_segments(tmp_path, METRICS, rows)
    with (tmp_path / "segments.csv").open() as file:
        head, *found = csv.reader(file)
    assert head == ["window", "segment", "value", "n_targets", *METRICS]
    assert [[float(each) for each in row[4:]] for row in found] == [row.metrics for row in rows]
    write_segments(tmp_path, METRICS, [])
    assert (tmp_path / "segments.csv").read_text().count("\n") == 1


def test_other_features_are_no_segments(folder):
    with pytest.raises(ConfigError, match=r"segments: price: no categorical .* of category$"):
        Segments(folder, ["price"], METRICS, "ndcg_at_5")


@pytest.mark.parametrize("is_all", [False, True])
def test_where_events_have_types_targets_are_grouped_by_theirs(tmp_path, is_all):
    path = write_window_folder(tmp_path / "windows", DAYS)
    found = summed(WindowFolder(add_types(path)), [], is_all=is_all)
    assert_rows(found, "target_type", target_type, is_all=is_all)
    [slicing] = found.slicings(["always right"])
    assert slicing.title == "Type of the target's event"
