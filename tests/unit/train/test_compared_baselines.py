"""The baselines beside a run: the same as runs of their own, in files of their own."""

import logging

import numpy as np
import pytest

from dayahead.config.baselines import COMPARED
from dayahead.core.errors import TrainingError
from dayahead.metrics.metrics import mean
from dayahead.model.checkpoint import load_model
from dayahead.outputs.ranks_by_window import read_baseline_ranks
from dayahead.outputs.tables import read_evidence, read_ranks, read_windows
from dayahead.train.compared_baselines import baseline_study, train_baselines
from dayahead.train.data_loading import Loader
from dayahead.train.results import ResultsFolder
from dayahead.train.stage import run_protocol
from support.tiny_settings import tiny_study, train_study
from support.window_folders import bytes_in, markov_days, write_window_folder

GRU = {"model": {"architecture": "gru"}, "evaluation": {"predictions": 3, "train_sessions": 5}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), markov_days(4, 20, 15))


def baselines_in(out):
    folder = out / "results" / "baselines"
    return {path.stem: read_windows(path, [1, 5]) for path in sorted(folder.glob("*.csv"))}


@pytest.mark.long
def test_baselines_are_those_of_runs_of_their_own(windows, tmp_path, caplog):
    train_study(windows, tmp_path / "gru", GRU)
    before = bytes_in(tmp_path / "gru")
    caplog.set_level(logging.INFO)
    caplog.clear()
    found = train_baselines(tiny_study(windows, tmp_path / "gru", GRU))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(COMPARED)
    assert lines[-1].startswith("baseline transitions, over the same 3 windows: ndcg_at_5 0.")
    tables = baselines_in(tmp_path / "gru")
    assert list(tables) == sorted(COMPARED)
    for name, rows in tables.items():
        train_study(windows, tmp_path / name, {"model": {"architecture": name}})
        assert rows == read_windows(tmp_path / name / "results" / "windows.csv", [1, 5])
        own = {
            row.window: read_ranks(tmp_path / name / "results", row.window).ranks for row in rows
        }
        ranks = read_baseline_ranks(tmp_path / "gru" / "results", name, own)
        assert all(np.array_equal(ranks[window], own[window]) for window in own)
        assert found[f"{name}_aod_ndcg_at_5"] == mean([row.metrics["ndcg_at_5"] for row in rows])
    after = bytes_in(tmp_path / "gru")
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 2 * len(COMPARED)


def test_a_baseline_is_not_compared_with_itself(windows, tmp_path):
    train_baselines(tiny_study(windows, tmp_path, {"model": {"architecture": "own"}}))
    assert list(baselines_in(tmp_path)) == sorted({*COMPARED} - {"own"})


def test_baselines_count_a_window_once_where_it_is_in_several_fits(windows, tmp_path):
    study = tiny_study(windows, tmp_path, {"training": {"protocol": "sliding", "history": 2}})
    assert study.params.training.carry_model
    assert baseline_study("transitions", study, tmp_path).params.training.starts_afresh


def test_one_process_runs_them_whatever_started_it(windows, tmp_path, monkeypatch):
    """Rank 0 of a launcher, after the others have ended."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    study = tiny_study(windows, tmp_path, {"compute": {"processes": 2, "shard_items": True}})
    train_baselines(study)
    assert list(baselines_in(tmp_path)) == sorted(COMPARED)


@pytest.mark.slow
def test_windows_larger_than_memory_are_streamed_as_for_the_model(windows, tmp_path, monkeypatch):
    sections = {"evaluation": {"split": "test"}}
    train_baselines(tiny_study(windows, tmp_path / "memory", sections))
    monkeypatch.delattr("dayahead.train.data_loading.shuffled_rows")  # of fits from memory
    monkeypatch.delattr(Loader, "_sorted_batches")
    streamed = sections | {"training": {"loader": "stream"}}
    train_baselines(tiny_study(windows, tmp_path / "stream", streamed))
    assert baselines_in(tmp_path / "stream") == baselines_in(tmp_path / "memory")


def test_a_failure_leaves_the_results_of_the_model(windows, tmp_path, monkeypatch):
    train_study(windows, tmp_path, GRU)
    before = bytes_in(tmp_path)

    def fail(process, study):
        if study.params.model.architecture == "transitions":
            raise TrainingError("on purpose")
        run_protocol(process, study)

    monkeypatch.setattr("dayahead.train.compared_baselines.run_protocol", fail)
    with pytest.raises(TrainingError, match="on purpose"):
        train_baselines(tiny_study(windows, tmp_path, GRU))
    assert bytes_in(tmp_path).items() >= before.items()
    assert logging.getLogger("dayahead.train").level == logging.NOTSET


def test_a_run_removes_the_baselines_of_the_last_one(windows, tmp_path):
    train_baselines(tiny_study(windows, tmp_path, GRU))
    (tmp_path / "results" / "evidence.csv").touch()
    ResultsFolder(tmp_path / "results", [1, 5]).clear()
    assert not (tmp_path / "results" / "baselines").exists()
    assert not (tmp_path / "results" / "evidence.csv").exists()


def test_evidence_is_the_weights_of_the_last_fit(windows, tmp_path):
    memory = {"model": {"architecture": "memory"}}
    train_study(windows, tmp_path / "memory", memory)
    found = read_evidence(tmp_path / "memory" / "results" / "evidence.csv")
    model = load_model(tmp_path / "memory" / "models").model
    assert found == model.memory.weights()
    assert any(found.values())


def test_other_architectures_have_no_evidence(windows, tmp_path):
    train_study(windows, tmp_path, GRU)
    assert (tmp_path / "results" / "evidence.csv").read_text() == "feature,weight\n"
