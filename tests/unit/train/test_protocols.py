"""Which windows each protocol fits on, and which model it starts from."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.files import write_parquet
from dayahead.model.checkpoint import load_model
from dayahead.train.trainers import GradientTrainer
from dayahead.windows.folder import window_path
from support.outputs import same_files
from support.tiny_settings import evaluated_windows, ranks_of, train_study
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=16, n_items=25)
DROPOUT = {"dropout": 0.2, "input_dropout": 0.1}
OUTPUTS = ["models/model.safetensors", "results/windows.csv"]
COUNTS = [[[1, 2], [1, 2]], [[2, 3]], [[3, 1], [3, 2]], [[1, 3]]]


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


def study(windows, out, **training):
    model = DROPOUT | {"features": ["category", "price"]}
    return train_study(windows, out, {"training": training, "model": model})


def with_joined_days(windows, folder, n_days):
    """A copy in which day `n_days - 1` has the train sessions of all days up to it."""
    shutil.copytree(windows, folder)
    trains = [window_path(folder, "day", day(number), "train") for number in range(n_days)]
    whole = pa.concat_tables([pq.read_table(path, partitioning=None) for path in trains])
    write_parquet(trains[-1], whole)
    return folder


def ranks_files(out):
    return [f"results/ranks/{window}.parquet" for window in evaluated_windows(out)]


def test_sliding_over_one_window_equals_incremental(windows, tmp_path):
    first = study(windows, tmp_path / "a")
    second = study(windows, tmp_path / "b", protocol="sliding", history=1)
    assert same_files(first, second, *OUTPUTS, *ranks_files(first))


@pytest.mark.parametrize("loader", ["memory", pytest.param("stream", marks=pytest.mark.slow)])
def test_from_scratch_equals_a_first_fit_on_all_days_so_far(windows, tmp_path, loader):
    """Day 3 is evaluated after a fit on days 0 to 2, as after a first fit on all three at once."""
    folder = with_joined_days(windows, tmp_path / "joined", 3)
    sections = {
        "training": {"loader": loader, "fit_last": False, "epochs": 2},
        "evaluation": {"split": "test"},
        "model": DROPOUT,
    }
    fresh = train_study(folder, tmp_path / "a", sections, first=day(2))
    sections["training"] |= {"protocol": "from_scratch"}
    whole = train_study(windows, tmp_path / "b", sections)
    assert evaluated_windows(whole) == [day(1), day(2), day(3)]
    assert np.array_equal(ranks_of(fresh, day(3)), ranks_of(whole, day(3)))
    models = [load_model(out / "models").model.state_dict() for out in (fresh, whole)]
    assert all(models[0][name].equal(models[1][name]) for name in models[0])


@pytest.mark.slow
def test_sliding_over_all_windows_with_a_fresh_model_equals_from_scratch(windows, tmp_path):
    first = study(windows, tmp_path / "a", protocol="from_scratch")
    second = study(windows, tmp_path / "b", protocol="sliding", history=4, carry_model=False)
    third = study(windows, tmp_path / "c", protocol="sliding", history=4)
    assert same_files(first, second, *OUTPUTS, *ranks_files(first))
    assert same_files(first, third, ranks_files(first)[0])
    assert not same_files(first, third, OUTPUTS[0])


@pytest.mark.parametrize("protocol", ["incremental", "from_scratch"])
def test_each_fit_prepares_its_trainer_once(windows, tmp_path, monkeypatch, protocol):
    """Growing the trainer wraps its model in DDP."""
    sizes = []
    grow = GradientTrainer.grow

    def counted(self, items):
        sizes.append(items)
        grow(self, items)

    monkeypatch.setattr(GradientTrainer, "grow", counted)
    study(windows, tmp_path, protocol=protocol)
    assert len(sizes) == len(DAYS)


def test_a_fresh_model_does_not_depend_on_windows_before_its_history(windows, tmp_path):
    """A fresh model fitted on two windows, days 1 and 2, does not depend on day 0."""
    other = markov_days(n_days=1, sessions_per_day=16, n_items=25, seed=5)
    # The same items on every first day, so that indices agree.
    every = [[list(range(25))]]
    folders = [
        write_window_folder(tmp_path / name, [every[0] + days[0], *DAYS[1:]], max_length=25)
        for name, days in (("x", DAYS), ("y", other))
    ]
    settings = {"protocol": "sliding", "history": 2, "carry_model": False}
    outs = [train_study(f, tmp_path / f"out-{f.name}", {"training": settings}) for f in folders]
    assert not same_files(*outs, f"results/ranks/{day(2)}.parquet")
    assert same_files(*outs, f"results/ranks/{day(3)}.parquet", OUTPUTS[0])


@pytest.mark.parametrize(
    ("settings", "popularity"),
    [
        ({"protocol": "incremental"}, [1, 1, 2]),
        ({"protocol": "sliding", "history": 2, "carry_model": True}, [1, 2, 3]),
        ({"protocol": "sliding", "history": 2, "carry_model": False}, [1, 2, 3]),
        ({"protocol": "from_scratch"}, [3, 4, 3]),
    ],
)
def test_popularity_by_protocol(tmp_path, settings, popularity):
    """Popularity of items 1, 2 and 3 after the fit at day 2, which holds 3 1 and 3 2."""
    folder = write_window_folder(tmp_path / "windows", COUNTS)
    sections = {"model": {"architecture": "popularity"}}
    sections["training"] = settings | {"fit_last": False}
    out = train_study(folder, tmp_path / "out", sections)
    assert load_model(out / "models").model.popularity.tolist() == popularity


@pytest.mark.parametrize(
    ("settings", "after_one"),
    [
        ({"protocol": "incremental"}, 2),
        ({"protocol": "sliding", "history": 2, "carry_model": False}, 0),
        ({"protocol": "from_scratch"}, 2),
    ],
)
def test_transitions_by_protocol(tmp_path, settings, after_one):
    """How often 2 followed 1 as counted at day 2; it did twice, on day 0."""
    folder = write_window_folder(tmp_path / "windows", COUNTS)
    sections = {"model": {"architecture": "transitions"}}
    sections["training"] = settings | {"fit_last": False, "steps_per_window": 1, "batch_size": 1}
    out = train_study(folder, tmp_path / "out", sections)
    assert load_model(out / "models").model.pairs[0, 1] == after_one


def test_candidates_come_from_all_windows_so_far_with_a_fresh_model_too(tmp_path):
    folder = write_window_folder(tmp_path / "windows", COUNTS)
    settings = {"protocol": "sliding", "history": 1, "carry_model": False, "fit_last": False}
    sections = {"model": {"architecture": "popularity"}, "training": settings}
    out = train_study(folder, tmp_path / "out", sections, last=day(2))
    # Item 1 (of day 0 only) is ranked on day 2 after a fit on day 1, which has 2 and 3.
    assert ranks_of(out, day(2)).tolist() == [3, 2]
