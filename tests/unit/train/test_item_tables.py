"""Studies with a table of items: items without a click, availability, and no look ahead."""

import shutil
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
import torch

from dayahead.distributed.process import Process, Rank
from dayahead.model.checkpoint import load_model
from dayahead.outputs.lists import read_lists
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.tables import read_baselines, read_ranks, read_windows
from dayahead.train.cache_keys import CacheKeys
from dayahead.train.catalogue import Catalogue
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.stage import train
from dayahead.windows.folder import WindowFolder
from dayahead.windows.items import ItemTable
from support.clicks import clicks
from support.listed_items import VECTOR, Row, add_items, table_of
from support.live_windows import spread_sessions
from support.memory_models import fitted
from support.tiny_settings import merge_sections, tiny_params, tiny_study, train_study
from support.window_folders import START, bytes_in, day, markov_days, write_window_folder

NEW = 90
"""Raw id of an item that is first clicked on the last day."""
DAYS = markov_days(n_days=3, sessions_per_day=24, n_items=12)
DAYS[2] = [[*session, NEW] if n % 3 == 0 else session for n, session in enumerate(DAYS[2])]
MEMORY = {
    "model": {"architecture": "memory", "features": ["category"]},
    "evaluation": {"split": "all", "positions": "all", "candidates": "known"},
}
MODELS = {
    "memory": MEMORY,
    "ticks": merge_sections(MEMORY, live={"tick": "1h"}),
    "gpt2 in memory": merge_sections(MEMORY, model={"network": "gpt2"}),
    "transitions": merge_sections(MEMORY, model={"architecture": "transitions", "features": []}),
}
each_model = pytest.mark.parametrize("name", MODELS)


def vector(item):
    angle = item * 0.4
    return (np.cos(angle), np.sin(angle), 0.0)


ROWS = [
    *(Row(item, vector(item), category=item % 3 + 2) for item in range(12)),
    Row(NEW, vector(3)),
]


def folder_of(path, rows, listed):
    write_window_folder(path, DAYS, features=True, listed=listed)
    return add_items(path, rows)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("windows"), ROWS, {0: [NEW]})


def ranks_of(out, number):
    found = read_ranks(out / "results", day(number))
    return found.targets, found.ranks


def index_of(windows, item):
    vocabulary = WindowFolder(windows).vocabulary("item_id")
    return vocabulary["value"].to_pylist().index(item) + 2


@pytest.mark.long
def test_an_item_without_a_click_is_ranked_by_its_content(windows, tmp_path):
    found = {}
    for name in ("memory", "transitions"):
        out = train_study(windows, tmp_path / name, MODELS[name])
        targets, ranks = ranks_of(out, 2)
        found[name] = ranks[targets == index_of(windows, NEW)]
        assert (found[name] > 0).all()
    # `transitions` knows nothing of it: it is the last of the catalogue.
    assert (found["transitions"] >= 12).all()
    assert found["memory"].mean() < found["transitions"].mean()


@pytest.mark.long
@each_model
def test_what_is_known_later_changes_no_earlier_rank(windows, tmp_path, name):
    later = [
        Row(item, vector(item + 6), day=number, category=2, end=START)
        for number in (1, 2)
        for item in range(12)
    ]
    other = folder_of(tmp_path / "windows", [*ROWS, *later], {0: [NEW]})
    plain, changed = (
        train_study(folder, tmp_path / kind, MODELS[name])
        for kind, folder in (("plain", windows), ("changed", other))
    )
    assert np.array_equal(ranks_of(plain, 1)[1], ranks_of(changed, 1)[1])
    assert not np.array_equal(ranks_of(plain, 2)[1], ranks_of(changed, 2)[1])


@pytest.mark.long
@each_model
def test_only_available_items_are_candidates(tmp_path, name):
    noon = START + timedelta(days=2, hours=12)
    gone = {0: START, 1: noon}
    rows = [
        Row(row.item, row.vector, category=row.category, end=gone.get(row.item)) for row in ROWS
    ]
    windows = folder_of(tmp_path / "windows", rows, {0: [NEW]})
    out = train_study(windows, tmp_path / "out", MODELS[name])
    targets, ranks = ranks_of(out, 2)
    first, second = (targets == index_of(windows, item) for item in gone)
    again = [session[:-1].count(0) for session in DAYS[2]]
    assert first.any()
    assert max(again) > 0
    assert (ranks[first] == 0).all()  # also where a session has it already
    assert (ranks[second] > 0).all()  # all sessions of the day start before noon
    assert (ranks[~first & ~second] > 0).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["memory", "ticks", "gpt2 in memory"])
def test_a_resumed_run_equals_one_without_a_break(windows, tmp_path, fits, name):
    whole = train_study(windows, tmp_path / "whole", MODELS[name])
    study = tiny_study(windows, tmp_path / "broken", MODELS[name])
    train(study)
    shutil.rmtree(study.cache / "evaluations")
    for entry in sorted((study.cache / "fits").iterdir())[:1]:
        shutil.rmtree(entry)
    fits.clear()
    train(study)
    for kind in ("models", "results/ranks"):
        assert bytes_in(tmp_path / "broken" / kind) == bytes_in(whole / kind)


def test_other_rows_of_a_window_are_other_fits_from_there_on(windows, tmp_path):
    other = folder_of(tmp_path / "windows", [*ROWS, Row(3, vector(9), day=1)], {0: [NEW]})
    is_same = [a == b for a, b in zip(keys_of(windows), keys_of(other), strict=True)]
    assert is_same == [True, False, False]


def keys_of(path, sections=MODELS["memory"], first=0):
    params, process = tiny_params(sections), Process(Rank(0, 1), torch.device("cpu"))
    folder = WindowFolder(path)
    catalogue = Catalogue(folder, params.model)
    return CacheKeys(params, catalogue, folder.windows[first:], process, None).fits


def test_rows_of_before_the_first_window_fitted_are_in_its_key(windows, tmp_path):
    rows = [replace(row, category=4 if row.item == 3 else row.category) for row in ROWS]
    other = folder_of(tmp_path / "windows", rows, {0: [NEW]})
    both = zip(keys_of(windows, first=1), keys_of(other, first=1), strict=True)
    assert [a == b for a, b in both] == [False, False]


def test_whether_items_without_a_click_are_candidates_is_in_every_key(windows, tmp_path):
    plain = write_window_folder(tmp_path / "plain", DAYS, features=True)
    known, seen = (
        merge_sections(MEMORY, evaluation={"candidates": name}) for name in ("known", "seen")
    )
    assert not {*keys_of(windows, known)} & {*keys_of(windows, seen)}
    assert keys_of(plain, known) == keys_of(plain, seen)


def test_vectors_of_later_windows_are_in_the_first_key_of_a_full_catalogue(windows, tmp_path):
    other = folder_of(tmp_path / "windows", [*ROWS, Row(91, vector(1), day=2)], {0: [NEW], 2: [91]})
    again = folder_of(tmp_path / "again", [*ROWS, Row(91, vector(2), day=2)], {0: [NEW], 2: [91]})
    of_model = {"pretrained_items": VECTOR, "item_embedding_dim": 3}
    grow, full = ({"model": {**of_model, "catalogue": name}} for name in ("grow", "full"))
    assert keys_of(other, grow)[0] == keys_of(again, grow)[0]
    assert keys_of(other, full)[0] != keys_of(again, full)[0]


@pytest.mark.parametrize(("candidates", "is_one"), [("seen", False), ("known", True)])
def test_items_without_a_click_are_candidates_where_all_are(windows, tmp_path, candidates, is_one):
    sections = merge_sections(MODELS["memory"], evaluation={"candidates": candidates})
    out = train_study(windows, tmp_path / "out", sections, last=day(1))
    memories = load_model(out / "models").model.memory.memories
    memories.know_items(memories.items_table, with_new=candidates != "seen")
    found = memories.reader(12)(clicks([[index_of(windows, 3)]], categories=[[(2,)]]))
    assert (index_of(windows, NEW) in found.candidates) == is_one


def test_an_item_that_is_not_released_is_no_candidate_of_a_fit():
    rows = table_of([Row(2, (1, 0, 0)), Row(3, (1, 0, 0), start=START)], [2, 3])
    model = fitted(vectors=(VECTOR,))
    model.memories.know_items(ItemTable(rows.drop(["category"])))
    start = int(START.timestamp()) * 1_000_000
    for time, is_one in ((start - 1, False), (start, True)):
        model.memories.now = time
        assert (3 in model.memories.reader(8)(clicks([[2]])).candidates) == is_one


@pytest.mark.long
def test_vectors_are_those_that_the_settings_name(windows, tmp_path):
    settings = merge_sections(MODELS["memory"], memory={"vectors": []})
    out = train_study(windows, tmp_path / "without", settings)
    assert "content" not in (out / "results" / "evidence.csv").read_text()
    out = train_study(windows, tmp_path / "with", MODELS["memory"])
    assert "content.title.new" in (out / "results" / "evidence.csv").read_text()


def test_a_network_starts_from_vectors_of_items(windows, tmp_path):
    settings = {
        "model": {"pretrained_items": VECTOR, "item_embedding_dim": 3, "freeze_items": True}
    }
    out = train_study(windows, tmp_path / "out", settings)
    weights = load_model(out / "models").model.state_dict()
    [table] = [w for n, w in weights.items() if n.endswith("items.weight")]
    place = index_of(windows, NEW) - 2
    assert table[place].numpy() == pytest.approx(np.float32(vector(3)))


def test_the_saved_model_has_the_newest_rows_with_raw_values(windows, tmp_path):
    out = train_study(windows, tmp_path / "out", MODELS["memory"])
    stored = load_model(out / "models")
    assert stored.items.rows["category"].to_pylist() == [
        item % 3 if item != NEW else None for item in stored_ids(stored)
    ]
    assert stored.items.table.rows["category"].type == pa.int32()


def stored_ids(stored):
    values = stored.vocabularies["item_id"]["value"].to_pylist()
    return [values[index - 2] for index in stored.items.table.items]


@pytest.mark.long
def test_availability_within_a_window_leaves_runs_comparable(tmp_path):
    """Baselines have the candidates of the window's start, ticks those of the tick."""
    rows = [replace(row, end=START + timedelta(days=2, hours=6)) for row in ROWS]
    windows = spread_sessions(folder_of(tmp_path / "windows", rows, {0: [NEW]}))
    study = tiny_study(windows, tmp_path / "out", MODELS["ticks"])
    train(study)
    train_baselines(study)
    own = read_windows(study.results / "windows.csv", [1, 5])
    tables = read_baselines(study.results, "memory", own, has_ticks=True)
    assert own[-1].target_outside > tables["popularity"][-1].target_outside
    ranks = {row.window: read_ranks(study.results, row.window).ranks for row in own}
    found = read_baseline_ranks(study.results, "popularity", ranks, has_ticks=True)
    assert (found[day(2)] > 0)[ranks[day(2)] == 0].any()


@pytest.mark.long
@pytest.mark.parametrize(("n_left", "n_windows"), [(3, 2), (0, 1)])
def test_with_ticks_no_lists_are_counted_where_a_tick_has_no_candidate(tmp_path, n_left, n_windows):
    """Most items are withdrawn within the last day, before its last sessions."""
    gone = START + timedelta(days=2, hours=6)
    rows = [replace(row, end=None if row.item < n_left else gone) for row in ROWS]
    windows = spread_sessions(folder_of(tmp_path / "windows", rows, {0: [NEW]}))
    sections = merge_sections(MODELS["ticks"], evaluation={"lists": 5, "predictions": 5})
    results = train_study(windows, tmp_path / "out", sections) / "results"
    assert [row.window for row in read_lists(results)] == [day(1), day(2)][:n_windows]


def test_an_item_that_is_released_within_the_window_is_an_own_item(tmp_path):
    """It has just been clicked, as in service; other sessions get what the day began with."""
    start = START + timedelta(days=2, hours=1)
    rows = [replace(row, start=start if row.item == 0 else None) for row in ROWS]
    windows = folder_of(tmp_path / "windows", rows, {0: [NEW]})
    out = train_study(windows, tmp_path / "out", MODELS["transitions"])
    targets, ranks = ranks_of(out, 2)
    found = ranks[targets == index_of(windows, 0)]
    prefixes = [s[:n] for s in DAYS[2] for n in range(1, len(s)) if s[n] == 0]
    assert (found > 0).tolist() == [0 in prefix for prefix in prefixes]
    assert {*(found > 0).tolist()} == {True, False}
