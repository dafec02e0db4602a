"""Studies of events with types: what is evaluated, what is learned, and that nothing leaks."""

import csv
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.distributed.launch import run_processes
from dayahead.outputs.tables import read_ranks
from dayahead.train.stage import run_protocol, train
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import compute_config, merge_sections, tiny_study, train_study
from support.typed_windows import TYPES, add_types, drawn_type
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=3, sessions_per_day=24, n_items=12)
TARGETS = ["cart", "purchase"]
TYPED = {
    "events": {"targets": TARGETS, "weights": {"cart": 3.0, "purchase": 8.0, "view": 0.5}},
    "evaluation": {"split": "test"},
}
MEMORY = {"model": {"architecture": "memory", "features": ["category"]}}
MODELS = {
    "gpt2": {},
    "transitions": {"model": {"architecture": "transitions"}},
    "memory": MEMORY,
    "ticks": {**MEMORY, "live": {"tick": "1h"}},
}
each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)
    return add_types(folder)


def sessions_of(windows, number, role="test"):
    """Id, items and types of each session of a day."""
    folder = WindowFolder(windows)
    table = folder.read(folder.windows[number], role, ["session_id", "item_id", "event_type"])
    return [(row["session_id"], row["item_id"], row["event_type"]) for row in table.to_pylist()]


def targets_of(windows, number, *, is_all):
    """Session, position and item of each target, in plain Python."""
    found = []
    for name, items, types in sessions_of(windows, number):
        steps = [n for n, kind in enumerate(types) if n and TYPES[kind - 2] in TARGETS]
        found += [(name, n, items[n]) for n in (steps if is_all else steps[-1:])]
    return found


@pytest.mark.parametrize("positions", ["last", "all"])
@each_model
def test_targets_are_the_events_of_these_types(windows, tmp_path, name, positions):
    sections = merge_sections(
        merge_sections(MODELS[name], **TYPED), evaluation={"positions": positions}
    )
    out = train_study(windows, tmp_path / "out", sections)
    for number in (1, 2):
        ranks = read_ranks(out / "results", day(number))
        found = ranks.session_ids.to_pylist(), ranks.positions.tolist(), ranks.targets.tolist()
        expected = targets_of(windows, number, is_all=positions == "all")
        assert [*zip(*found, strict=True)] == expected
        assert ranks.n_sessions == len({session for session, *_ in expected})


@pytest.fixture(scope="module")
def cut(windows, tmp_path_factory):
    """The same windows, whose test sessions end with their target; those without one are gone."""
    folder = tmp_path_factory.mktemp("cut") / "windows"
    shutil.copytree(windows, folder)
    for number in range(len(DAYS)):
        ends = {name: step + 1 for name, step, _ in targets_of(windows, number, is_all=False)}
        [path] = folder.glob(f"*{day(number)}-test.parquet")
        table = pq.read_table(path, partitioning=None)
        rows = [
            {
                name: each[: ends[row["session_id"]]] if isinstance(each, list) else each
                for name, each in row.items()
            }
            for row in table.to_pylist()
            if row["session_id"] in ends
        ]
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    return folder


@each_model
def test_nothing_after_the_target_is_read(windows, cut, tmp_path, name):
    sections = merge_sections(MODELS[name], **TYPED)
    whole, short = (
        train_study(folder, tmp_path / kind, sections)
        for folder, kind in ((windows, "whole"), (cut, "cut"))
    )
    for number in (1, 2):
        a, b = (read_ranks(out / "results", day(number)) for out in (whole, short))
        assert len(a.ranks)
        assert np.array_equal(a.ranks, b.ranks)
        assert a.session_ids == b.session_ids


@each_model
def test_weights_of_1_and_all_types_as_targets_change_no_rank(windows, tmp_path, name):
    split = {"evaluation": {"split": "test", "positions": "all"}}
    one = {"events": {"targets": [*TYPES], "weights": dict.fromkeys(TYPES, 1.0)}}
    plain = train_study(windows, tmp_path / "plain", merge_sections(MODELS[name], **split))
    typed = train_study(windows, tmp_path / "typed", merge_sections(MODELS[name], **split, **one))
    for number in (1, 2):
        a, b = (read_ranks(out / "results", day(number)) for out in (plain, typed))
        assert np.array_equal(a.ranks, b.ranks)


@each_model
def test_weights_change_ranks(windows, tmp_path, name):
    sections = merge_sections(MODELS[name], evaluation={"split": "all", "positions": "all"})
    plain = train_study(windows, tmp_path / "plain", sections)
    weighted = merge_sections(sections, events={"weights": {"view": 0.0, "purchase": 50.0}})
    typed = train_study(windows, tmp_path / "typed", weighted)
    a, b = (read_ranks(out / "results", day(2)).ranks for out in (plain, typed))
    assert not np.array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "sampled_softmax"])
@pytest.mark.parametrize("architecture", ["gpt2", "memory"])
def test_two_processes_give_the_ranks_of_one(windows, tmp_path, architecture, loss):
    sections = merge_sections(
        TYPED, model={"architecture": architecture, "network": "gpt2"}, loss={"name": loss}
    )
    ranks = []
    for n_processes in (1, 2):
        study = tiny_study(windows, tmp_path / str(n_processes), sections)
        run_processes(run_protocol, compute_config(processes=n_processes), study)
        ranks.append(read_ranks(study.results, day(2)).ranks)
    assert np.array_equal(*ranks)


def test_a_window_without_events_to_learn_from_changes_no_weight(tmp_path):
    """Of the first day's sessions only the first event is of the type that is predicted."""
    folder = write_window_folder(tmp_path / "windows", DAYS)

    def kind(session, step):
        if session.startswith("0"):
            return "view" if step else "cart"
        return drawn_type(session, step)

    add_types(folder, kind)
    study = tiny_study(folder, tmp_path / "out", {"events": {"targets": ["cart"]}})
    train(study)
    rows = (study.results / "windows.csv").read_text().splitlines()
    assert [row.rpartition(",")[2] == "" for row in rows] == [False, True, False]


def test_the_terminal_says_how_many_sessions_are_evaluated(windows, tmp_path, caplog):
    with caplog.at_level("INFO"):
        train_study(windows, tmp_path / "out", TYPED)
    n_all = sum(len(sessions_of(windows, number)) for number in (1, 2))
    n_found = sum(len(targets_of(windows, number, is_all=False)) for number in (1, 2))
    assert 0 < n_found < n_all
    expected = f"events.targets: {n_found} of {n_all} sessions have a cart or purchase"
    assert any(message.startswith(expected) for message in caplog.messages)


def test_a_window_without_a_target_is_left_out_and_said(tmp_path, caplog):
    """On the third of four days only the first event of a session is a purchase."""
    days = markov_days(n_days=4, sessions_per_day=24, n_items=12)
    folder = write_window_folder(tmp_path / "windows", days)

    def kind(session, step):
        if session.startswith("2"):
            return "view" if step else "purchase"
        return "purchase" if step % 2 else "view"

    add_types(folder, kind)
    sections = {"events": {"targets": ["purchase"]}, "evaluation": {"split": "test"}}
    out = train_study(folder, tmp_path / "out", sections)
    with (out / "results/windows.csv").open() as file:
        assert [row["window"] for row in csv.DictReader(file)] == [day(1), day(3)]
    assert f"not evaluated, as no session has a target: {day(2)}" in caplog.messages
