"""Evaluation of a fit on later windows: what is counted, candidates, caches, processes."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dayahead.distributed.launch import run_processes
from dayahead.model.checkpoint import load_model
from dayahead.outputs.ranks_by_window import read_later_ranks
from dayahead.outputs.tables import read_ranks
from dayahead.train.run import Run
from dayahead.train.saved_model import saved_ranks
from dayahead.windows.folder import WindowFolder
from support.live_windows import spread_sessions, times_of, with_other_clicks
from support.memory_models import MEMORY_WITH_GPT2
from support.outputs import without_times
from support.tiny_settings import (
    compute_config,
    evaluated_windows,
    merge_sections,
    ranks_of,
    tiny_study,
    train_study,
)
from support.window_folders import bytes_in, day, markov_days, write_window_folder
from support.worker_studies import run_and_record

DAYS = markov_days(n_days=4, sessions_per_day=12, n_items=12)
TWO, THREE = ({"evaluation": {"split": "all", "horizon": horizon}} for horizon in (2, 3))
ONE = {"evaluation": {"split": "all", "horizon": 1}}
MEMORY = {"model": {"architecture": "memory"}}
LIVE = {**MEMORY, "live": {"tick": "30min", "session_gap": "30min"}}
LIVE_WITH_GPT2 = merge_sections(LIVE, **MEMORY_WITH_GPT2)
MODELS = {"gpt2": {}, "memory": MEMORY, "ticks": LIVE, "ticks and gpt2": LIVE_WITH_GPT2}
every_model = pytest.mark.parametrize(
    "sections",
    [
        pytest.param(sections, id=name, marks=pytest.mark.slow if "and" in name else ())
        for name, sections in MODELS.items()
    ],
)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return spread_sessions(write_window_folder(tmp_path_factory.mktemp("windows"), DAYS))


def run(folder, out, sections, horizon=TWO, **more):
    return train_study(folder, out, merge_sections(sections, **horizon), **more)


def later(out, n_after=2):
    """Ranks by the day of the window, with models fitted `n_after` days earlier."""
    own = {name: read_ranks(out / "results", name).ranks for name in evaluated_windows(out)}
    return read_later_ranks(out / "results", n_after, own)


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(ranks, other[name]) for name, ranks in one.items()
    )


@pytest.mark.parametrize(
    "architecture", ["popularity", "transitions", "own", "vstan", "slist", "gru", "memory"]
)
def test_without_ticks_a_model_ranks_a_later_window_as_it_would_the_next(tmp_path, architecture):
    """A log without the days between has the same model, items and sessions."""
    days = [[[1, 2, 3, 4, 5], [5, 6, 1]], [[2, 3], [6, 9]], [[4, 5], [1, 2, 3], [8, 1]]]
    sections = {"model": {"architecture": architecture}, **TWO}
    whole = train_study(write_window_folder(tmp_path / "w", days), tmp_path / "out", sections)
    gap = write_window_folder(tmp_path / "gap", [days[0], days[2]])
    short = train_study(gap, tmp_path / "short", sections)
    assert later(whole)[day(2)].tolist() == ranks_of(short, day(1)).tolist()
    assert (later(whole)[day(2)] > 0).tolist() == [True, True, True]


def test_each_fit_is_evaluated_on_the_windows_that_exist(windows, tmp_path):
    out = run(windows, tmp_path / "out", {"model": {"architecture": "popularity"}}, THREE)
    assert [*later(out, 2)] == [day(2), day(3)]
    assert [*later(out, 3)] == [day(3)]
    assert sorted(path.name for path in (out / "results" / "horizon").iterdir()) == [
        "2.parquet", "3.parquet", "README.txt",
    ]  # fmt: skip


@pytest.mark.long
@every_model
def test_the_horizon_changes_no_other_file(windows, tmp_path, sections):
    files = []
    for horizon in (ONE, THREE):
        out = run(windows, tmp_path / "out", sections, horizon, cache=tmp_path / f"{len(files)}")
        files.append(without_times(bytes_in(out)))
        shutil.rmtree(out)
    added = {name for name in files[1] if name not in files[0]}
    assert {Path(name).name for name in added} == {"2.parquet", "3.parquet"}
    assert files[0] == {name: content for name, content in files[1].items() if name not in added}


@pytest.mark.long
@every_model
def test_a_longer_horizon_takes_the_evaluations_of_the_next_window_from_the_cache(
    windows, tmp_path, sections, monkeypatch
):
    whole = later(run(windows, tmp_path / "whole", sections))
    run(windows, tmp_path / "one", sections, ONE, cache=tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", None)
        again = run(windows, tmp_path / "two", sections, cache=tmp_path / "cache")
        assert same(later(again), whole)
        patch.setattr(Run, "fit", None)
        patch.setattr(Run, "evaluate_later", None)
        for name, horizon in (("again", TWO), ("shorter", ONE)):
            out = run(windows, tmp_path / name, sections, horizon, cache=tmp_path / "cache")
        assert same(later(tmp_path / "again"), whole)
        assert not [*(out / "results" / "horizon").glob("*.parquet")]


@pytest.mark.long
@every_model
def test_a_run_killed_in_a_later_evaluation_ends_the_same(windows, tmp_path, monkeypatch, sections):
    whole = run(windows, tmp_path / "whole", sections, THREE)
    evaluate, calls = Run.evaluate_later, []

    def killed(self, *about):
        calls.append(about)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(self, *about)

    monkeypatch.setattr(Run, "evaluate_later", killed)
    cache = {"cache": tmp_path / "cache"}
    with pytest.raises(KeyboardInterrupt):
        run(windows, tmp_path / "out", sections, THREE, **cache)
    shutil.rmtree(tmp_path / "out")
    run(windows, tmp_path / "out", sections, THREE, **cache)
    assert len(calls) == 3 + 1  # three ranks in all, of which two were cached
    assert without_times(bytes_in(tmp_path / "out")) == without_times(bytes_in(whole))


@pytest.mark.long
def test_ticks_count_on_after_the_fit_and_nothing_else_does(windows, tmp_path):
    """The clicks of the day between reach the model of the day before by its ticks alone."""
    copied = with_other_clicks(windows, tmp_path / "copied", 1)
    for name, is_same in (("gpt2", True), ("memory", True), ("ticks", False)):
        found = [
            later(run(folder, tmp_path / f"{name}{n}", MODELS[name], last=day(2)))[day(2)]
            for n, folder in enumerate((windows, copied))
        ]
        assert np.array_equal(*found) == is_same, name


@pytest.mark.parametrize("sections", [LIVE, LIVE_WITH_GPT2], ids=["none", "gpt2"])
def test_no_rank_of_a_later_window_depends_on_clicks_at_or_after_its_tick(
    windows, tmp_path, sections
):
    copied = with_other_clicks(windows, tmp_path / "copied", 2, hour=6)
    sections = merge_sections(sections, evaluation=TWO["evaluation"] | {"positions": "all"})
    before, after = (
        later(train_study(folder, tmp_path / name, sections, last=day(2)))[day(2)]
        for name, folder in (("before", windows), ("after", copied))
    )
    # Targets are asked for at the click before them.
    is_early = [time.hour < 6 for row in times_of(windows, 2) for time in row[:-1]]
    assert 0 < sum(is_early) < len(is_early)
    assert np.array_equal(before[is_early], after[is_early])
    assert not np.array_equal(before, after)


@pytest.mark.long
def test_ticks_count_the_windows_since_the_fit_once_as_a_saved_model_does(windows, tmp_path):
    ranks = later(run(windows, tmp_path / "out", LIVE, last=day(2)))[day(2)]
    sections = merge_sections(LIVE, training={"fit_last": False})
    saved = run(windows, tmp_path / "saved", sections, ONE, last=day(1))
    stored, folder = load_model(saved / "models", to_fit=False), WindowFolder(windows)
    assert stored.config.window == day(0)
    found = saved_ranks(stored, folder, folder.windows[2], "all").ranks
    assert found.tolist() == ranks.tolist()


@pytest.mark.long
def test_items_counted_since_the_fit_are_candidates(tmp_path):
    """Item 8 is new on the second day, item 9 on the third; only 8 was clicked before its tick."""
    days = [[[1, 2], [2, 3], [3, 1]], [[1, 8], [2, 8]], [[1, 8], [2, 9], [3, 9]]]
    folder = spread_sessions(write_window_folder(tmp_path / "windows", days))
    out = run(folder, tmp_path / "ticks", LIVE)
    assert (later(out)[day(2)] > 0).tolist() == [True, False, True]
    out = run(folder, tmp_path / "still", MEMORY)
    assert (later(out)[day(2)] > 0).tolist() == [False, False, False]
    assert (ranks_of(out, day(2)) > 0).tolist() == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("sections", [{}, LIVE_WITH_GPT2], ids=["gpt2", "ticks and gpt2"])
def test_two_processes_agree_with_one(windows, tmp_path, sections):
    sections = merge_sections(sections, **TWO)
    one = train_study(windows, tmp_path / "one", sections)
    study = tiny_study(windows, tmp_path / "two", sections)
    run_processes(run_and_record, compute_config(processes=2), {"two": study}, tmp_path)
    found, expected = (np.concatenate([*later(out).values()]) for out in (tmp_path / "two", one))
    assert len(found) == len(expected) == 2 * 12
    assert (found == expected).mean() > 0.9  # sums are rounded otherwise
