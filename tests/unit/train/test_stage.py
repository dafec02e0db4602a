"""The protocol on windows small enough to check by hand, and that nothing leaks out of a day."""

import filecmp
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import ConfigError, TrainingError
from dayahead.core.files import write_parquet
from dayahead.metrics.tables import read_ranks, read_windows
from dayahead.model.checkpoint import load_model
from dayahead.windows.folder import window_path
from support.tiny_settings import evaluated_windows, every_backbone, ranks_of, train_study
from support.window_folders import day, markov_days, write_window_folder

POPULARITY = {"model": {"architecture": "popularity"}}
DROPOUT = {"model": {"dropout": 0.2, "input_dropout": 0.1}}
DAYS = markov_days(n_days=4, sessions_per_day=30, n_items=25)
BY_HAND = [
    [[1, 2], [1, 3], [1, 2, 1]],  # 1 x4, 2 x2, 3 x1
    [[2, 1], [9, 2], [1, 3], [2, 4]],  # targets 1, 2, 3 and 4; 4 and 9 are new
    [[1, 9], [2, 3], [4, 8]],  # targets 9, 3 and 8; 8 is new
]


@pytest.fixture
def by_hand(tmp_path):
    return write_window_folder(tmp_path / "windows", BY_HAND)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


def same_files(first, second, *names):
    return all(filecmp.cmp(first / name, second / name, shallow=False) for name in names)


def outputs(out):
    timed = out / "results" / "timing.csv"
    return [str(p.relative_to(out)) for p in sorted(out.rglob("*")) if p.is_file() and p != timed]


def test_popularity_by_hand(by_hand, tmp_path):
    train_study(by_hand, tmp_path, POPULARITY)
    # Day 0 makes 1, 2, 3 candidates with 4, 2, 1 events; 4 is none: a miss.
    assert ranks_of(tmp_path, day(1)).tolist() == [1, 2, 3, 0]
    # Day 1 counts 2 x3, 1 x2, 3, 4, 9 x1 each: ties count against; 8 is no candidate.
    assert ranks_of(tmp_path, day(2)).tolist() == [5, 5, 0]
    second, third = read_windows(tmp_path / "results" / "windows.csv", [1, 5])
    assert (second.window, second.n_sessions, second.target_outside) == (day(1), 4, 0.25)
    assert second.metrics["recall_at_1"] == 0.25
    assert second.metrics["mrr_at_5"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)
    assert second.train_loss is None
    assert (third.target_outside, third.metrics["recall_at_5"]) == (1 / 3, 2 / 3)


def test_ranks_name_sessions_and_targets_in_the_order_of_the_file(by_hand, tmp_path):
    train_study(by_hand, tmp_path, POPULARITY)
    ranks = read_ranks(tmp_path / "results", day(1))
    assert ranks.session_ids.to_pylist() == [f"1-{i:06d}" for i in range(4)]
    # Indices by first sight: 1, 2, 3 are 2, 3, 4; then 9 is 5 and 4 is 6.
    assert ranks.targets.tolist() == [2, 3, 4, 6]


def test_all_candidates_rank_among_every_item_of_the_log(by_hand, tmp_path):
    paper = {"model": {"architecture": "popularity", "catalogue": "full"}}
    train_study(by_hand, tmp_path, paper | {"evaluation": {"candidates": "all"}})
    # Of six items 4, 9 and 8 have no events yet: the three of them tie for the last place.
    assert ranks_of(tmp_path, day(1)).tolist() == [1, 2, 3, 6]
    assert ranks_of(tmp_path, day(2)).tolist() == [5, 5, 6]


def test_a_full_catalogue_still_ranks_over_what_was_seen(by_hand, tmp_path):
    train_study(by_hand, tmp_path, {"model": {"architecture": "popularity", "catalogue": "full"}})
    assert ranks_of(tmp_path, day(1)).tolist() == [1, 2, 3, 0]


def test_seen_means_in_a_train_session(by_hand, tmp_path):
    """Item 9 of day 1 stands in valid and train; without train sessions it is no candidate."""
    train_study(by_hand, tmp_path, POPULARITY, first=day(1))
    assert ranks_of(tmp_path, day(2)).tolist() == [5, 5, 0]
    assert load_model(tmp_path / "models").candidates.tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("split", "places"), [("all", [0, 1, 2, 3]), ("valid", [0, 2]), ("test", [1, 3])]
)
def test_a_split_measures_its_sessions_and_all_every_one_once(by_hand, tmp_path, split, places):
    train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"split": split}})
    ranks = read_ranks(tmp_path / "results", day(1))
    assert ranks.session_ids.to_pylist() == [f"1-{i:06d}" for i in places]
    assert ranks.ranks.tolist() == [[1, 2, 3, 0][place] for place in places]


@pytest.mark.parametrize(("fit_last", "window"), [(True, 2), (False, 1)])
def test_models_holds_what_was_fitted_last(by_hand, tmp_path, fit_last, window):
    train_study(by_hand, tmp_path, POPULARITY | {"training": {"fit_last": fit_last}})
    stored = load_model(tmp_path / "models")
    assert stored.config.window == day(window)
    items = [item for session in BY_HAND[window] for item in session]
    catalogue = stored.vocabularies["item_id"]["value"].to_pylist()
    assert stored.model.popularity.tolist() == [items.count(item) for item in catalogue]
    assert catalogue == [1, 2, 3, 9, 4] + ([8] if fit_last else [])


def test_fitting_the_last_window_changes_no_measure(windows, tmp_path):
    for name, fit_last in (("a", True), ("b", False)):
        train_study(windows, tmp_path / name, {"training": {"fit_last": fit_last}})
    assert same_files(tmp_path / "a", tmp_path / "b", "results/windows.csv")
    assert not same_files(tmp_path / "a", tmp_path / "b", "models/model.safetensors")


def test_windows_the_statistics_were_fitted_on_are_never_measured(tmp_path):
    folder = write_window_folder(tmp_path / "windows", DAYS, fitted_on=2)
    train_study(folder, tmp_path, POPULARITY)
    assert evaluated_windows(tmp_path) == [day(2), day(3)]
    csv = read_windows(tmp_path / "results" / "windows.csv", [1, 5])
    assert [row.window for row in csv] == [day(2), day(3)]


def test_a_study_that_would_measure_nothing_is_refused(tmp_path):
    folder = write_window_folder(tmp_path / "windows", DAYS, fitted_on=3)
    with pytest.raises(ConfigError, match=r"preprocess\.fit_windows"):
        train_study(folder, tmp_path, POPULARITY, last=day(2))


@pytest.mark.parametrize("sections", [POPULARITY, DROPOUT], ids=["popularity", "gpt2"])
def test_the_same_seed_and_settings_give_the_same_bytes(windows, tmp_path, sections):
    for name in ("a", "b"):
        train_study(windows, tmp_path / name, sections)
    names = outputs(tmp_path / "a")
    assert {"models/model.safetensors", "results/windows.csv"} < set(names)
    assert sum(name.startswith("results/ranks/") for name in names) == 3
    assert outputs(tmp_path / "b") == names
    assert same_files(tmp_path / "a", tmp_path / "b", *names)


def test_another_seed_gives_another_model(windows, tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        train_study(windows, tmp_path / name, {"training": {"seed": seed}})
    assert not same_files(tmp_path / "a", tmp_path / "b", "results/windows.csv")


def test_a_run_again_leaves_nothing_of_the_run_before(windows, tmp_path):
    train_study(windows, tmp_path, POPULARITY)
    train_study(windows, tmp_path, POPULARITY, last=day(2))
    assert evaluated_windows(tmp_path) == [day(1), day(2)]


@every_backbone
def test_a_longer_run_begins_with_the_shorter_one(windows, tmp_path, architecture, task):
    sections = {"model": DROPOUT["model"] | {"architecture": architecture}, "task": {"name": task}}
    short = train_study(windows, tmp_path / "a", sections, last=day(2))
    long = train_study(windows, tmp_path / "b", sections)
    assert evaluated_windows(short) == [day(1), day(2)]
    for window in evaluated_windows(short):
        assert same_files(short, long, f"results/ranks/{window}.parquet")


@pytest.mark.parametrize("architecture", ["gpt2", "transitions"])
def test_a_day_knows_nothing_of_the_next(windows, tmp_path, architecture):
    """Change all sessions of the last day: what was fitted and measured before stays."""
    other = markov_days(n_days=1, sessions_per_day=40, n_items=60, seed=9)
    folder = write_window_folder(tmp_path / "windows", [*DAYS[:3], *other])
    sections = {"model": {"architecture": architecture}, "training": {"fit_last": False}}
    first = train_study(windows, tmp_path / "a", sections)
    second = train_study(folder, tmp_path / "b", sections)
    for name in (f"ranks/{day(1)}.parquet", f"ranks/{day(2)}.parquet"):
        assert same_files(first / "results", second / "results", name)
    assert not same_files(first, second, f"results/ranks/{day(3)}.parquet")
    assert same_files(first, second, "models/model.safetensors")


def test_a_window_is_measured_before_it_is_fitted(windows, tmp_path):
    """Shuffle which items follow which on day 2: the model measured on it must not know yet."""
    shifted = [[item + 1 for item in session] for session in DAYS[2]]
    folder = write_window_folder(tmp_path / "windows", [DAYS[0], DAYS[1], shifted, DAYS[3]])
    first, second = train_study(windows, tmp_path / "a"), train_study(folder, tmp_path / "b")
    rows = [read_windows(out / "results" / "windows.csv", [1, 5]) for out in (first, second)]
    # Each row's loss is of the window before: the same for days 1 and 2, another for day 3.
    assert [a.train_loss == b.train_loss for a, b in zip(*rows, strict=True)] == [True, True, False]


def test_a_diverging_loss_ends_the_run_and_leaves_no_model(windows, tmp_path):
    huge = {"training": {"learning_rate": 1e30, "schedule": "constant", "epochs": 3}}
    with pytest.raises(TrainingError, match=r"training\.learning_rate"):
        train_study(windows, tmp_path, huge)
    assert not (tmp_path / "models").exists()


def test_streaming_gives_what_memory_gives(windows, tmp_path):
    sections = {"evaluation": {"split": "test"}}
    for loader in ("memory", "nvtabular"):
        train_study(windows, tmp_path / loader, sections | {"training": {"loader": loader}})
    names = outputs(tmp_path / "memory")
    assert same_files(tmp_path / "memory", tmp_path / "nvtabular", *names)


def test_side_features_that_the_data_set_lacks_are_named(windows, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.features: price, size not among"):
        train_study(windows, tmp_path, {"model": {"features": ["price", "size"]}})


def test_side_features_take_part(tmp_path):
    folder = write_window_folder(tmp_path / "windows", DAYS, features=True)
    plain = train_study(folder, tmp_path / "a")
    rich = train_study(folder, tmp_path / "b", {"model": {"features": ["category", "price"]}})
    assert not np.array_equal(ranks_of(plain, day(1)), ranks_of(rich, day(1)))
    card = json.loads((rich / "models" / "config.json").read_text())
    assert card["sizes"]["category"] == 3
    assert set(card["statistics"]["features"]) == {"category", "price"}


@pytest.mark.parametrize("architecture", ["gpt2", "popularity", "transitions"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_window_without_train_sessions_teaches_nothing(tmp_path, architecture, number):
    folder = write_window_folder(tmp_path / "windows", DAYS)
    path = window_path(folder, "day", day(number), "train")
    write_parquet(path, pq.read_table(path, partitioning=None).slice(0, 0))
    train_study(folder, tmp_path, {"model": {"architecture": architecture}})
    rows = read_windows(tmp_path / "results" / "windows.csv", [1, 5])
    assert rows[number].train_loss is None
    assert [row.target_outside == 1 for row in rows] == [number == 0, False, False]


def test_a_split_without_sessions_is_refused_before_any_training(tmp_path, windows):
    folder = tmp_path / "windows"
    shutil.copytree(windows, folder)
    path = window_path(folder, "day", day(2), "test")
    write_parquet(path, pq.read_table(path, partitioning=None).slice(0, 0))
    with pytest.raises(ConfigError, match=r"split: test has no session in 1 of the 3 evaluated"):
        train_study(folder, tmp_path, {"evaluation": {"split": "test"}})
    assert not (tmp_path / "results").exists()
