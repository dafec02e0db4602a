"""The stage on windows small enough to check by hand; nothing leaks from later windows."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from dayahead.config.baselines import BASELINES, MEMORY, TIMED
from dayahead.core.errors import TrainingError
from dayahead.core.files import write_parquet
from dayahead.model.checkpoint import load_model
from dayahead.outputs.tables import WindowResult, read_ranks, read_windows
from dayahead.train.stage import Progress, log_line
from dayahead.windows.folder import window_path
from support.outputs import same_files, without_times
from support.tiny_settings import evaluated_windows, ranks_of, train_study
from support.window_folders import bytes_in, day, markov_days, write_window_folder

POPULARITY = {"model": {"architecture": "popularity"}}
DROPOUT = {"model": {"dropout": 0.2, "input_dropout": 0.1}}
DAYS = markov_days(n_days=4, sessions_per_day=20, n_items=25)
BY_HAND = [
    [[1, 2], [1, 3], [1, 2, 1]],  # 1 x4, 2 x2, 3 x1
    [[2, 1], [9, 2], [1, 3], [2, 4]],  # targets 1, 2, 3 and 4; 4 and 9 are new
    [[1, 9], [2, 3], [4, 8]],  # targets 9, 3 and 8; 8 is new
]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("by_hand"), BY_HAND)


@pytest.fixture(scope="module")
def popularity(by_hand, tmp_path_factory):
    """The popularity baseline on BY_HAND."""
    return train_study(by_hand, tmp_path_factory.mktemp("popularity"), POPULARITY)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


@pytest.fixture(scope="module")
def default(windows, tmp_path_factory):
    """A study of `windows` with the default settings."""
    return train_study(windows, tmp_path_factory.mktemp("default"))


def mark_slow(architectures):
    fast = ("gpt2", "transitions", MEMORY)
    return [pytest.param(a, marks=() if a in fast else pytest.mark.slow) for a in architectures]


def outputs(out):
    return sorted(without_times(bytes_in(out)))


def remove_sessions(folder, number, role):
    path = window_path(folder, "day", day(number), role)
    write_parquet(path, pq.read_table(path, partitioning=None).slice(0, 0))


def test_popularity_by_hand(popularity):
    # Day 0 makes 1, 2, 3 candidates with 4, 2, 1 events; 4 is none: a miss.
    assert ranks_of(popularity, day(1)).tolist() == [1, 2, 3, 0]
    # Day 1 counts 2 x3, 1 x2, 3, 4, 9 x1 each: ties count against; 8 is no candidate.
    assert ranks_of(popularity, day(2)).tolist() == [5, 5, 0]
    second, third = read_windows(popularity / "results" / "windows.csv", [1, 5])
    assert (second.window, second.n_sessions, second.target_outside) == (day(1), 4, 0.25)
    assert second.metrics["recall_at_1"] == 0.25
    assert second.metrics["mrr_at_5"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)
    assert second.train_loss is None
    assert (third.target_outside, third.metrics["recall_at_5"]) == (1 / 3, 2 / 3)


def test_ranks_have_session_ids_and_targets_in_the_order_of_the_window_file(popularity):
    ranks = read_ranks(popularity / "results", day(1))
    assert ranks.session_ids.to_pylist() == [f"1-{i:06d}" for i in range(4)]
    # Indices in order of first occurrence: 1, 2, 3 are 2, 3, 4; then 9 is 5 and 4 is 6.
    assert ranks.targets.tolist() == [2, 3, 4, 6]


def test_candidates_all_are_the_items_of_the_whole_log(by_hand, tmp_path):
    full = {"model": {"architecture": "popularity", "catalogue": "full"}}
    train_study(by_hand, tmp_path, full | {"evaluation": {"candidates": "all"}})
    # Of six items 4, 9 and 8 have no events yet: the three of them tie for the last rank.
    assert ranks_of(tmp_path, day(1)).tolist() == [1, 2, 3, 6]
    assert ranks_of(tmp_path, day(2)).tolist() == [5, 5, 6]


def test_candidates_seen_are_those_so_far_with_a_full_catalogue_too(by_hand, tmp_path):
    train_study(by_hand, tmp_path, {"model": {"architecture": "popularity", "catalogue": "full"}})
    assert ranks_of(tmp_path, day(1)).tolist() == [1, 2, 3, 0]


def test_a_run_that_starts_later_has_the_candidates_of_its_train_sessions(by_hand, tmp_path):
    train_study(by_hand, tmp_path, POPULARITY, first=day(1))
    assert ranks_of(tmp_path, day(2)).tolist() == [5, 5, 0]
    assert load_model(tmp_path / "models").candidates.tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("split", "rows"), [("valid", [0, 2]), ("test", [1, 3])])
def test_a_split_evaluates_its_sessions_only(by_hand, tmp_path, split, rows):
    train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"split": split}})
    ranks = read_ranks(tmp_path / "results", day(1))
    assert ranks.session_ids.to_pylist() == [f"1-{i:06d}" for i in rows]
    assert ranks.ranks.tolist() == [[1, 2, 3, 0][row] for row in rows]


@pytest.mark.parametrize(("fit_last", "window"), [(True, 2), (False, 1)])
def test_the_saved_model_is_that_of_the_last_fit(by_hand, tmp_path, fit_last, window):
    train_study(by_hand, tmp_path, POPULARITY | {"training": {"fit_last": fit_last}})
    stored = load_model(tmp_path / "models")
    assert stored.config.window == day(window)
    items = [item for session in BY_HAND[window] for item in session]
    catalogue = stored.vocabularies["item_id"]["value"].to_pylist()
    assert stored.model.popularity.tolist() == [items.count(item) for item in catalogue]
    assert catalogue == [1, 2, 3, 9, 4] + ([8] if fit_last else [])


def test_fit_last_does_not_change_metrics(windows, default, tmp_path):
    train_study(windows, tmp_path, {"training": {"fit_last": False}})
    assert same_files(default, tmp_path, "results/windows.csv")
    assert not same_files(default, tmp_path, "models/model.safetensors")


def test_the_same_seed_and_settings_give_the_same_bytes(windows, tmp_path):
    for name in ("a", "b"):
        train_study(windows, tmp_path / name, DROPOUT)
    names = outputs(tmp_path / "a")
    assert {"models/model.safetensors", "results/windows.csv"} < set(names)
    assert sum(name.startswith("results/ranks/") for name in names) == 3
    assert outputs(tmp_path / "b") == names
    assert same_files(tmp_path / "a", tmp_path / "b", *names)


def test_another_seed_gives_another_model(windows, default, tmp_path):
    train_study(windows, tmp_path, {"training": {"seed": 2}})
    assert not same_files(default, tmp_path, "results/windows.csv")


def test_a_second_run_removes_the_results_of_the_first(by_hand, tmp_path):
    train_study(by_hand, tmp_path, POPULARITY)
    train_study(by_hand, tmp_path, POPULARITY, last=day(1))
    assert evaluated_windows(tmp_path) == [day(1)]


@pytest.mark.parametrize(
    "architecture", mark_slow(["gpt2", *BASELINES[1:], MEMORY, "memory with gpt2"])
)
def test_a_window_does_not_depend_on_the_next(windows, tmp_path, architecture):
    """Change all sessions of the last day: earlier fits and evaluations stay the same."""
    other = markov_days(n_days=1, sessions_per_day=40, n_items=60, seed=9)
    folder = write_window_folder(tmp_path / "windows", [*DAYS[:3], *other])
    name, _, network = architecture.partition(" with ")
    model = {"architecture": name, "network": network or "none"}
    sections = {"model": model, "training": {"fit_last": False}}
    first = train_study(windows, tmp_path / "a", sections)
    second = train_study(folder, tmp_path / "b", sections)
    for name in (f"ranks/{day(1)}.parquet", f"ranks/{day(2)}.parquet"):
        assert same_files(first / "results", second / "results", name)
    assert not same_files(first, second, f"results/ranks/{day(3)}.parquet")
    assert same_files(first, second, "models/model.safetensors")


def test_a_window_is_evaluated_before_it_is_fitted(default, tmp_path):
    """Change which items follow which on day 2: the model evaluated on it must not know yet."""
    shifted = [[item + 1 for item in session] for session in DAYS[2]]
    folder = write_window_folder(tmp_path / "windows", [DAYS[0], DAYS[1], shifted, DAYS[3]])
    other = train_study(folder, tmp_path)
    rows = [read_windows(out / "results" / "windows.csv", [1, 5]) for out in (default, other)]
    # Each row has the loss of the fit before: the same for days 1 and 2, another for day 3.
    assert [a.train_loss == b.train_loss for a, b in zip(*rows, strict=True)] == [True, True, False]


def test_a_diverging_loss_ends_the_run_without_a_model(windows, tmp_path):
    huge = {"training": {"learning_rate": 1e6, "schedule": "constant", "epochs": 3}}
    with pytest.raises(TrainingError, match=r"training\.learning_rate"):
        train_study(windows, tmp_path, huge)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    "architecture", ["gpt2", *TIMED, pytest.param("transitions", marks=pytest.mark.slow)]
)
def test_streaming_and_memory_give_the_same_files(windows, tmp_path, architecture):
    sections = {"evaluation": {"split": "test"}, "model": {"architecture": architecture}}

    for loader in ("memory", "stream"):
        train_study(windows, tmp_path / loader, sections | {"training": {"loader": loader}})
    names = outputs(tmp_path / "memory")
    assert same_files(tmp_path / "memory", tmp_path / "stream", *names)


def test_features_change_the_model(default, tmp_path):
    folder = write_window_folder(tmp_path / "windows", DAYS, features=True)
    out = train_study(folder, tmp_path, {"model": {"features": ["category", "price"]}})
    assert not np.array_equal(ranks_of(default, day(1)), ranks_of(out, day(1)))
    config = json.loads((out / "models" / "config.json").read_text())
    assert config["sizes"]["category"] == 3
    assert set(config["statistics"]["features"]) == {"category", "price"}


@pytest.mark.parametrize("architecture", mark_slow(["gpt2", *BASELINES, MEMORY]))
@pytest.mark.parametrize("number", [0, 1])
def test_a_window_without_train_sessions_is_fitted_as_nothing(tmp_path, architecture, number):
    folder = write_window_folder(tmp_path / "windows", DAYS[:3])
    remove_sessions(folder, number, "train")
    train_study(folder, tmp_path, {"model": {"architecture": architecture}})
    rows = read_windows(tmp_path / "results" / "windows.csv", [1, 5])
    assert rows[number].train_loss is None
    of_others = np.mean([session[-1] not in session[:-1] for session in DAYS[1]])
    assert 0 < of_others < 1  # a session's own items are candidates, also where there are no others
    assert (rows[0].target_outside == of_others) == (number == 0)
    assert rows[1].target_outside < 1


def test_progress_says_which_window_and_how_long_the_rest_takes():
    times = iter([0.0, 1.0, 301.0, 321.0, 361.0, 362.0, 400.0])
    progress = Progress(6, lambda: next(times))
    assert progress.advance(is_cached=True) == "window 1 of 6"
    # The first one of 300 s has the start-up, so nothing can be said yet.
    assert progress.advance(is_cached=False) == "window 2 of 6"
    assert progress.advance(is_cached=False) == "window 3 of 6, 0:01:00 left"
    assert progress.advance(is_cached=False) == "window 4 of 6, 0:01:00 left"
    assert progress.advance(is_cached=True) == "window 5 of 6, 0:00:30 left"
    assert progress.advance(is_cached=False) == "window 6 of 6"


def test_the_line_of_a_window_fits_a_terminal():
    names = ("recall_at_10", "recall_at_20", "ndcg_at_10", "ndcg_at_20", "mrr_at_10", "mrr_at_20")
    metrics = {name: number / 10 for number, name in enumerate(names)}
    result = WindowResult("2026-01-04T13", 1620, 0.1, metrics, 3.40351, {})
    line = log_line(result, "window 100 of 999, 10:02:00 left", is_cached=False)
    assert line.endswith(": 2026-01-04T13 ndcg_at_20 0.3000 recall_at_20 0.1000 loss 3.404")
    assert len(line) <= 100
    counted = replace(result, train_loss=None)
    assert log_line(counted, "window 1 of 2", is_cached=True) == (
        "window 1 of 2: 2026-01-04T13 ndcg_at_20 0.3000 recall_at_20 0.1000, from the cache"
    )


def test_timing_has_the_size_of_the_state_that_the_next_fit_starts_from(windows, tmp_path):
    sections = {"model": {"architecture": "transitions"}, "machine": {"keep_fits": "all"}}
    out = train_study(windows, tmp_path / "out", sections)
    states = (tmp_path / "out-cache" / "fits").glob("*/state.safetensors")
    sizes = sorted(sum(each.nbytes for each in load_file(path).values()) for path in states)
    with (out / "results" / "timing.csv").open(newline="") as file:
        found = [int(row["state_bytes"]) for row in csv.DictReader(file)]
    assert found == sizes[:3]  # the last window is fitted on but not evaluated after
