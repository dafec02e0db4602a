"""Evaluation tick by tick: leaks, fits that go on from it, caches, processes, a saved model."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from dayahead.core.columns import EVENT_TIME, ITEM_ID, SESSION_ID
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Rank
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.tables import read_baselines, read_ranks, read_windows
from dayahead.train.batches import Sessions
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.live_evaluation import Request
from dayahead.train.stage import train
from support.live_windows import (
    LIVE,
    WITH_GPT2,
    rewrite,
    spread_sessions,
    times_of,
    train_file,
    with_other_clicks,
)
from support.tiny_settings import compute_config, merge_sections, tiny_study, train_study
from support.window_folders import day, markov_days, write_window_folder
from support.worker_studies import run_and_record

DAYS = markov_days(n_days=3, sessions_per_day=20, n_items=30)
EVERYTHING = {"evaluation": {"split": "all", "positions": "all", "predictions": 3}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Three days; a session starts every hour, and clicks five minutes apart."""
    folder = tmp_path_factory.mktemp("windows")
    return spread_sessions(write_window_folder(folder, DAYS, features=True))


def weights_in(out):
    return load_file(out / "models" / "model.safetensors")


def same_weights(one, other):
    one, other = weights_in(one), weights_in(other)
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def found_by(out, number):
    """Rank, recommendations and their scores by target: (session, position)."""
    table = pq.read_table(out / "results" / "predictions" / f"{day(number)}.parquet")
    names = (SESSION_ID, "position", "rank", "items", "scores")
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return {(name, position): values for name, position, *values in rows}


@pytest.mark.parametrize("sections", [LIVE, WITH_GPT2], ids=["none", "gpt2"])
def test_no_rank_depends_on_clicks_at_or_after_its_tick(windows, tmp_path, sections):
    copied = with_other_clicks(windows, tmp_path / "copied", 2, hour=10)
    sections = merge_sections(sections, **EVERYTHING)
    before, after = (
        found_by(train_study(folder, tmp_path / name, sections), 2)
        for name, folder in (("before", windows), ("after", copied))
    )
    times = times_of(windows, 2)
    asked = {key: times[int(key[0][2:])][key[1] - 1] for key in before}
    early = {key for key, time in asked.items() if time.hour < 10}
    assert 0 < len(early) < len(asked)
    assert all(before[key] == after[key] for key in early)
    assert any(before[key] != after[key] for key in asked.keys() - early)


@pytest.mark.long
@pytest.mark.parametrize("sections", [LIVE, WITH_GPT2], ids=["none", "gpt2"])
def test_an_evaluated_window_is_fitted_as_one_that_is_not(windows, tmp_path, sections):
    whole = train_study(windows, tmp_path / "whole", sections)
    cached = tiny_study(windows, tmp_path / "again", sections, cache=tmp_path / "whole-cache")
    shutil.rmtree(cached.cache / "fits")
    train(cached)  # evaluations come from the cache, so each fit counts its window by itself
    assert same_weights(whole, tmp_path / "again")


@pytest.mark.long
def test_a_run_goes_on_from_a_cached_fit(windows, tmp_path):
    train_study(windows, tmp_path / "whole", LIVE)
    for name in ("short", "long"):
        train_study(
            windows, tmp_path / name, LIVE, cache=tmp_path / "cache", last=day(1 + (name == "long"))
        )
    assert same_weights(tmp_path / "whole", tmp_path / "long")
    assert_equal_ranks(tmp_path / "whole", tmp_path / "long")


def assert_equal_ranks(one, other):
    for number in (1, 2):
        a, b = (read_ranks(out / "results", day(number)) for out in (one, other))
        assert np.array_equal(a.ranks, b.ranks)


def test_a_model_that_is_not_fitted_on_the_last_window_is_saved_as_of_its_fit(windows, tmp_path):
    last = {"training": {"fit_last": False}}
    train_study(windows, tmp_path / "longer", merge_sections(LIVE, **last))
    train_study(windows, tmp_path / "shorter", LIVE, last=day(1))
    assert same_weights(tmp_path / "longer", tmp_path / "shorter")
    end = read_json(tmp_path / "longer" / "models" / "config.json")["end"]
    assert weights_in(tmp_path / "longer")["weights.memory.memories.clock"].item() == end


@pytest.mark.slow
@pytest.mark.parametrize("sections", [LIVE, WITH_GPT2], ids=["none", "gpt2"])
def test_two_processes_agree_with_one(windows, tmp_path, sections):
    sections = merge_sections(sections, **EVERYTHING)
    one = train_study(windows, tmp_path / "one", sections)
    study = tiny_study(windows, tmp_path / "two", sections)
    run_processes(run_and_record, compute_config(processes=2), {"two": study}, tmp_path)
    if sections["model"].get("network", "none") == "none":
        assert same_weights(one, tmp_path / "two")
    same = [found_by(out, 2) for out in (one, tmp_path / "two")]
    assert same[0].keys() == same[1].keys()
    for key, (rank, items, scores) in same[0].items():
        assert (rank, items) == tuple(same[1][key][:2])
        assert scores == pytest.approx(same[1][key][2], abs=1e-5)


def test_an_item_of_the_window_is_a_candidate_from_the_next_tick_on(tmp_path):
    """Item 9 is new on the second day, and the second and third session end with it."""
    days = [[[1, 2], [2, 3], [3, 1]], [[1, 9], [2, 9], [3, 9]]]
    folder = spread_sessions(write_window_folder(tmp_path / "windows", days))
    sections = merge_sections(LIVE, evaluation={"split": "all"})
    train_study(folder, tmp_path / "live", sections)
    assert (read_ranks(tmp_path / "live" / "results", day(1)).ranks > 0).tolist() == [
        False,
        True,
        True,
    ]
    sections = merge_sections(sections, live={"tick": 0})
    train_study(folder, tmp_path / "nightly", sections)
    assert (read_ranks(tmp_path / "nightly" / "results", day(1)).ranks == 0).all()


@pytest.mark.parametrize("catalogue", ["grow", "full"])
def test_an_item_that_was_held_but_never_counted_becomes_a_candidate(tmp_path, catalogue):
    """Item 9 is in the vocabulary of the first day, but in none of its train sessions."""
    days = [[[1, 2], [2, 3], [9, 9]], [[1, 9], [2, 9], [3, 9]]]
    folder = spread_sessions(write_window_folder(tmp_path / "windows", days))
    rewrite(train_file(folder, 0), lambda table: table.slice(0, 2))
    settings = {"model": {"catalogue": catalogue}, "evaluation": {"split": "all"}}
    out = train_study(folder, tmp_path / "out", merge_sections(LIVE, **settings))
    ranks = read_ranks(out / "results", day(1)).ranks
    assert (ranks > 0).tolist() == [False, True, True]


def test_baselines_beside_it_have_the_candidates_of_the_fit(tmp_path):
    days = [[[1, 2], [2, 3], [3, 1]], [[1, 9], [2, 9], [3, 9]]]
    folder = spread_sessions(write_window_folder(tmp_path / "windows", days))
    study = tiny_study(folder, tmp_path / "out", merge_sections(LIVE, evaluation={"split": "all"}))
    train(study)
    train_baselines(study)
    cutoffs = study.params.evaluation.cutoffs
    rows = read_windows(study.results / "windows.csv", cutoffs)
    with pytest.raises(DataError, match="expected the windows, sessions and candidates"):
        read_baselines(study.results, "memory", rows)
    tables = read_baselines(study.results, "memory", rows, has_ticks=True)
    assert rows[0].target_outside == pytest.approx(1 / 3)
    assert [table[0].target_outside for table in tables.values()] == [1.0] * len(tables)
    own = {day(1): read_ranks(study.results, day(1)).ranks}
    found = read_baseline_ranks(study.results, "own", own, has_ticks=True)
    assert found[day(1)].tolist() == [0, 0, 0]


@pytest.mark.parametrize("tick", ["7min", "2d"])
def test_a_tick_divides_the_windows(windows, tmp_path, tick):
    message = f"live.tick: {tick} does not divide the windows: 2026-01-01 ends at 2026-01-02T00:00"
    with pytest.raises(ConfigError, match=message):
        train_study(windows, tmp_path / "out", merge_sections(LIVE, live={"tick": tick}))


def test_targets_are_asked_for_at_the_last_click_of_their_prefix():
    minutes = torch.tensor([0, 5, 29, 30, 61])
    sessions = Sessions(
        {ITEM_ID: torch.arange(2, 7), EVENT_TIME: minutes * 60_000_000}, torch.tensor([0, 3, 5])
    )
    tick, end = 30 * 60_000_000, 60 * 60_000_000
    request = Request.of(sessions, np.array([2, 1]), tick, end)
    assert (request.ticks // tick).tolist() == [0, 0, 1]
    [first] = request.prefixes_at(0, Rank(0, 1), 9)
    assert first.n_known.tolist() == [1, 2]
    assert first.targets.tolist() == [3, 4]
    assert first.indices.tolist() == [0, 1]
    [second] = request.prefixes_at(tick, Rank(0, 1), 9)
    assert (second.targets.tolist(), second.indices.tolist()) == ([6], [2])
    assert [*request.prefixes_at(tick, Rank(1, 2), 9)] == []
    late = Request.of(sessions, np.array([2, 1]), tick, tick // 2)
    assert late.ticks.tolist() == [0, 0, tick // 2]  # after the window's end nothing more counts
