"""Rows of a table: which runs are joined, what rows are called, and what is refused."""

import pytest

from dayahead.comparison.rows import parse_row, rows_of
from dayahead.core.errors import ComparisonError
from support.results_folders import write_run

DAYS = {f"2019-10-0{day}": [1, 2] for day in range(2, 4)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, seed=1, **settings):
    write_run(name, DAYS, {"dataset": "g1", "training.seed": seed, **settings})
    return name


def named(texts, tmp_path, names="runs"):
    given = [parse_row(text) for text in texts]
    return {row.name: [*row.runs] for row in rows_of(given, tmp_path / "into", names)}


def test_runs_that_differ_in_the_seed_alone_are_a_row(tmp_path):
    small = [write(f"small-{seed}", seed, **{"model.n_layer": 1}) for seed in (1, 2)]
    large = [write(f"large-{seed}", seed, **{"model.n_layer": 2}) for seed in (11, 12)]
    found = named([small[0], *large, small[1]], tmp_path)
    assert found == {"small": small, "large": large}


def test_settings_without_effect_on_results_make_no_other_row(tmp_path):
    a = write("a", 1, **{"compute.threads": 1, "tracking.experiment": "x", "profile.window": None})
    b = write("b", 2, **{"compute.threads": 2, "tracking.experiment": "y", "profile.window": "z"})
    assert named([a, b], tmp_path) == {"a,b": ["a", "b"]}


def test_rows_may_be_called_by_the_settings_in_which_they_differ(tmp_path):
    shared = {"model.architecture": "gru"}
    a = write("a", **shared, **{"model.n_layer": 1, "model.dropout": 0.1})
    b = write("b", **shared, **{"model.n_layer": 2, "model.dropout": 0.0})
    found = named(
        [a, b, "best=" + write("c", **shared, **{"model.n_layer": 3})], tmp_path, "settings"
    )
    assert found == {
        "n_layer=1, dropout=0.1": ["a"],
        "n_layer=2, dropout=0.0": ["b"],
        "best": ["c"],
    }


def test_settings_of_one_name_are_called_with_their_section(tmp_path):
    shared = {"evaluation.batch_size": 512, "model.n_layer": 2}
    pairs = [("a", 64, "softmax"), ("b", 128, "softmax"), ("c", 64, "gbce")]
    for name, size, loss in pairs:
        settings = {"training.batch_size": size, "loss.name": loss, "task.name": loss[:3]}
        write(name, **shared, **settings)
    assert [*named(["a", "b", "c"], tmp_path, "settings")] == [
        "training.batch_size=64, loss.name=softmax, task.name=sof",
        "training.batch_size=128, loss.name=softmax, task.name=sof",
        "training.batch_size=64, loss.name=gbce, task.name=gbc",
    ]


def test_runs_without_known_settings_are_joined_by_name_alone(tmp_path):
    for name in "abc":
        write_run(name, DAYS, None)
    assert named(["a", "two  runs=b,c"], tmp_path) == {"a": ["a"], "two runs": ["b", "c"]}
    assert named(["b,c"], tmp_path, "settings") == {"b,c": ["b", "c"]}


def test_a_folder_may_have_an_equals_sign(tmp_path):
    assert named([write("lr=3")], tmp_path) == {"lr=3": ["lr=3"]}


def test_a_row_may_be_longer_than_the_name_of_a_file():
    runs = [f"{number:032x}" for number in range(8)]
    assert parse_row(f"gru={','.join(runs)}") == ("gru", runs)


@pytest.mark.parametrize(
    ("other", "texts", "message"),
    [
        ({"dataset": "g2"}, ["a", "b"], "^a and b cannot be in one table: dataset is g1 in a"),
        ({"evaluation.split": "valid"}, ["a", "b"], "evaluation.split is test in a and valid in b"),
        ({"events.targets": ["cart"]}, ["a", "b"], "events.targets is null in a and .*cart.* in b"),
        ({"preprocess.fit_windows": 3}, ["a", "b"], "preprocess.fit_windows is null in a and 3"),
        ({"model.n_layer": 2}, ["a,b"], "^a,b: runs of one row .* differ in model.n_layer"),
        ({}, ["a", "b"], "^a and b have the same settings and the same training.seed"),
        ({"model.n_layer": 2}, ["x=a", "x=b"], "^x: two rows have this name"),
        ({"model.n_layer": 2}, ["a", "x=a"], "expected different runs"),
        ({"model.n_layer": 2}, ["a", "missing"], "^missing: no results found"),
        ({"model.n_layer": 2}, ["x="], "expected different runs"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, other, texts, message):
    write("a", **{"evaluation.split": "test", "model.n_layer": 1})
    write("b", **{"evaluation.split": "test", "model.n_layer": 1, **other})
    with pytest.raises(ComparisonError, match=message):
        named(texts, tmp_path)


def test_the_same_settings_before_and_after_a_change_of_code_are_two_rows_by_name(tmp_path):
    found = named(["before=" + write("a"), "after=" + write("b")], tmp_path)
    assert found == {"before": ["a"], "after": ["b"]}
