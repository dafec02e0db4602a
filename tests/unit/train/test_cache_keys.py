"""Keys: whatever a fit or a measurement depends on changes them, and nothing else does."""

import shutil
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from dayahead.core.columns import ITEM_ID, VALUE
from dayahead.core.files import read_json, write_json, write_parquet
from dayahead.distributed.process import Process, Rank
from dayahead.train import cached_windows as keys_module
from dayahead.train.cached_windows import CacheKeys
from dayahead.train.run import Run
from dayahead.windows.folder import WindowFolder, vocabulary_path, window_path
from support.other_settings import OF_MEASURING, OTHER
from support.tiny_settings import tiny_study
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=5, sessions_per_day=12, n_items=300)
AFTERWARDS = {"fit_last", "cutoffs"}
CHANGES = [(section, name) for section, values in OTHER.items() for name in values]
known_version = cache(version)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)
    edit(folder / "statistics.json", lambda known: known["sessions"].update(past_max_length=5))
    return folder


@pytest.fixture(autouse=True)
def _no_models(monkeypatch):
    """Keys look at no model; and packages are looked up once."""
    monkeypatch.setattr(Run, "_build", lambda _: (None, None))
    monkeypatch.setattr("dayahead.train.run.check_attention", lambda _: None)
    monkeypatch.setattr(keys_module, "version", known_version)


@pytest.fixture
def own(windows, tmp_path):
    """A copy of the windows that a test may change."""
    return Path(shutil.copytree(windows, tmp_path / "own"))


def edit(path, change):
    """Change a JSON file."""
    value = read_json(path)
    change(value)
    write_json(path, value)


def rewrite(path, change):
    """Write a table anew, changed."""
    write_parquet(path, change(pq.read_table(path, partitioning=None)))


def keys_of(folder, sections=None, *, world=1, device="cpu", machine=None):
    """Keys of a study; it measures by the test split unless it says otherwise."""
    sections = {"evaluation": {"split": "test"}} | (sections or {})
    process = Process(Rank(0, world), torch.device(device))
    windows = WindowFolder(folder).windows
    return CacheKeys(
        Run(tiny_study(folder, folder, sections), process, windows[0]), windows, machine
    )


def evaluations(keys):
    return tuple(keys.evaluation(index) for index in range(len(keys.windows) - 1))


def n_shared(keys, others):
    """How many fits and how many measurements two runs share: the first ones, and none later."""
    counts = []
    for pair in ((keys.fits, others.fits), (evaluations(keys), evaluations(others))):
        same = [a == b for a, b in zip(*pair, strict=False)]
        assert same == sorted(same, reverse=True)
        counts.append(sum(same))
    return tuple(counts)


def test_every_window_has_keys_of_its_own_that_come_again(windows):
    keys = keys_of(windows)
    assert len({*keys.fits, *evaluations(keys)}) == 5 + 4
    assert n_shared(keys, keys_of(windows)) == (5, 4)


@pytest.mark.parametrize(("section", "name"), CHANGES, ids=[".".join(each) for each in CHANGES])
def test_every_setting_of_a_fit_is_in_all_keys(windows, section, name):
    other = keys_of(windows, {section: {name: OTHER[section][name]}})
    assert n_shared(keys_of(windows), other) == (0, 0)


@pytest.mark.parametrize("name", OF_MEASURING)
def test_every_setting_of_a_measurement_is_in_its_keys_alone(windows, name):
    evaluation = {"split": "test"} | {name: OF_MEASURING[name]}
    assert n_shared(keys_of(windows), keys_of(windows, {"evaluation": evaluation})) == (5, 0)


@pytest.mark.parametrize(
    "sections",
    [{"training": {"fit_last": False}}, {"evaluation": {"split": "test", "cutoffs": [3]}}],
)
def test_what_comes_after_the_ranks_is_in_no_key(windows, sections):
    assert n_shared(keys_of(windows), keys_of(windows, sections)) == (5, 4)


def test_no_setting_is_forgotten_here(windows):
    study = tiny_study(windows, windows)
    for section, values in {**OTHER, "evaluation": OF_MEASURING}.items():
        names = {field.name for field in fields(getattr(study.params, section))}
        assert names - set(values) <= {*AFTERWARDS, "pretrained_items"}, section


def test_other_item_vectors_are_another_fit(windows, tmp_path):
    path = tmp_path / "vectors.parquet"
    fits = []
    for text in ("some", "others"):
        path.write_text(text)
        fits.append(keys_of(windows, {"model": {"pretrained_items": str(path)}}).fits)
    assert fits[0] != fits[1]


def test_train_sessions_change_the_fits_from_their_window_on(windows, own):
    rewrite(window_path(own, "day", day(2), "train"), lambda table: table.slice(1))
    assert n_shared(keys_of(windows), keys_of(own)) == (2, 2)


def test_sessions_that_measure_change_what_is_measured_on_them_alone(windows, own):
    rewrite(window_path(own, "day", day(2), "test"), lambda table: table.slice(1))
    for split, is_same in (("test", False), ("valid", True), ("all", False)):
        sections = {"evaluation": {"split": split}}
        before, after = keys_of(windows, sections), keys_of(own, sections)
        assert after.fits == before.fits
        same = [a == b for a, b in zip(evaluations(before), evaluations(after), strict=True)]
        assert same == [True, is_same, True, True]


def test_a_renamed_item_changes_the_keys_from_where_it_is_held(windows, own):
    store = WindowFolder(windows)
    place = store.n_known(ITEM_ID, store.windows[0])  # the first item that the second window adds

    def renamed(table):
        values = table[VALUE].to_pylist()
        values[place] = -1
        return table.set_column(table.column_names.index(VALUE), VALUE, [values])

    rewrite(vocabulary_path(own, ITEM_ID), renamed)
    assert n_shared(keys_of(windows), keys_of(own)) == (1, 1)
    # Lists of predictions may name what the window measured adds.
    lists = {"evaluation": {"split": "test", "predictions": 3}}
    assert n_shared(keys_of(windows, lists), keys_of(own, lists)) == (1, 0)


@pytest.mark.parametrize(("catalogue", "shared"), [("grow", (3, 2)), ("full", (0, 0))])
def test_a_longer_log_begins_with_the_keys_of_the_shorter(tmp_path, catalogue, shared):
    folders = [write_window_folder(tmp_path / str(n), DAYS[:n]) for n in (3, 5)]
    shorter, longer = (keys_of(each, {"model": {"catalogue": catalogue}}) for each in folders)
    assert n_shared(shorter, longer) == shared


@pytest.mark.parametrize(
    "change",
    [
        lambda known: known["sessions"].update(max_length=10),
        lambda known: known["features"]["price"].update(columns=["other"]),
    ],
)
def test_what_features_and_sessions_are_is_in_the_keys(windows, own, change):
    edit(own / "statistics.json", change)
    sections = {"model": {"features": ["price"]}}
    assert n_shared(keys_of(windows, sections), keys_of(own, sections)) == (0, 0)


def test_features_that_are_not_read_are_in_no_key(windows, own):
    edit(own / "statistics.json", lambda known: known["features"]["price"].update(kind="hour"))
    assert n_shared(keys_of(windows), keys_of(own)) == (5, 4)


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 0.1}, {"input_dropout": 0.1}, {"config": {"attn_pdrop": 0.1, "resid_pdrop": 0}}],
)
def test_processes_have_keys_of_their_own_where_they_draw_dropout(windows, settings):
    assert n_shared(keys_of(windows), keys_of(windows, world=2)) == (5, 4)
    drops = {"model": settings}
    assert n_shared(keys_of(windows, drops), keys_of(windows, drops, world=2)) == (0, 0)


def test_a_machine_is_in_the_keys_where_it_is_given(windows):
    given = [keys_of(windows, machine={"cpu": name}) for name in ("one", "other", "one")]
    assert n_shared(given[0], given[1]) == n_shared(given[0], keys_of(windows)) == (0, 0)
    assert n_shared(given[0], given[2]) == (5, 4)


def test_another_device_is_another_fit(windows):
    assert n_shared(keys_of(windows), keys_of(windows, device="meta")) == (0, 0)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("version", lambda _: "0"), ("source_fingerprint", lambda *rooms: "0")],
)
def test_packages_and_source_are_in_the_keys(windows, monkeypatch, name, changed):
    before = keys_of(windows)
    assert before.fits
    monkeypatch.setattr(keys_module, name, changed)
    assert n_shared(before, keys_of(windows)) == (0, 0)
