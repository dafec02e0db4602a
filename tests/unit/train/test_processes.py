"""One process or two: the same steps, the same losses, the same ranks."""

from itertools import chain

import numpy as np
import pytest
import torch

from dayahead.core.errors import ConfigError, DeadProcessError, TrainingError
from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process, Rank
from dayahead.metrics.tables import read_windows
from support.process_studies import DAYS, N_SESSIONS, every_variant
from support.tiny_settings import BACKBONES, compute_config, evaluated_windows, ranks_of, tiny_study
from support.window_folders import markov_days, write_window_folder
from support.worker_studies import die, die_once, refuse, run_and_record, say_who

COUNTED = {"transitions"}


@every_variant
def test_every_step_has_the_same_loss(runs, name):
    alone, together = (read_json(folder / f"{name}-0.json")["losses"] for folder in runs)
    assert len(alone) == (0 if name in COUNTED else len(DAYS) * 2 * 5)
    assert together == pytest.approx(alone, rel=1e-5)
    assert read_json(runs[1] / f"{name}-1.json")["losses"] == together


@every_variant
def test_every_session_is_read_by_one_process_once_per_epoch(runs, name):
    [alone] = [read_json(runs[0] / f"{name}-0.json")["sessions"]]
    shares = [read_json(runs[1] / f"{name}-{rank}.json")["sessions"] for rank in (0, 1)]
    for whole, *parts in zip(alone, *shares, strict=True):
        assert len(parts[0]) == len(parts[1])
        real = [place for place in chain(*parts) if place >= 0]
        assert sorted(real) == sorted(whole)
    if name not in COUNTED:
        assert sorted(chain(*alone[:5])) == list(range(N_SESSIONS))
        assert [-1] in shares[1]


@every_variant
def test_ranks_and_metrics_are_the_same(runs, name):
    alone, together = (folder / name for folder in runs)
    assert evaluated_windows(alone) == evaluated_windows(together)
    for window in evaluated_windows(alone):
        assert np.array_equal(ranks_of(alone, window), ranks_of(together, window))
    rows = [read_windows(out / "results" / "windows.csv", [1, 5]) for out in (alone, together)]
    assert [row.metrics for row in rows[0]] == [row.metrics for row in rows[1]]


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), BACKBONES)
def test_two_processes_stay_together_for_300_steps(tmp_path, architecture, task):
    days = markov_days(n_days=4, sessions_per_day=1201, n_items=300)
    windows = write_window_folder(tmp_path / "windows", days)
    sections = {
        # Rows as far apart as those of the presets: nearer ones tie but for rounding.
        "model": {
            "architecture": architecture,
            "d_model": 32,
            "n_layer": 2,
            "item_init_std": 0.1,
        },
        "task": {"name": task},
        "training": {"batch_size": 12, "learning_rate": 0.002},
    }
    rows, losses, ranks = [], [], []
    for n_processes in (1, 2):
        out = tmp_path / str(n_processes)
        studies = {"study": tiny_study(windows, out / "study", sections)}
        run_processes(run_and_record, compute_config(processes=n_processes), studies, out)
        losses.append(read_json(out / "study-0.json")["losses"])
        rows.append(read_windows(out / "study" / "results" / "windows.csv", [5]))
        ranks.append([ranks_of(out / "study", row.window) for row in rows[-1]])
    assert len(losses[0]) == 4 * 101
    assert losses[1][:300] == pytest.approx(losses[0][:300], rel=1e-5)
    for alone, together in zip(*ranks, strict=True):
        assert (alone == together).mean() >= 0.999
    for metric in rows[0][0].metrics:
        first, second = (np.mean([row.metrics[metric] for row in table]) for table in rows)
        assert second == pytest.approx(first, abs=5e-4)


def test_one_process_runs_right_here(tmp_path):
    run_processes(say_who, compute_config(processes=1, threads=2), tmp_path)
    assert read_json(tmp_path / "0.json") == {
        "world": 1,
        "is_main": True,
        "threads": 2,
        "sum": 1,
    }
    torch.set_num_threads(1)


@pytest.mark.slow
def test_three_processes_know_their_places_and_sum(tmp_path):
    run_processes(say_who, compute_config(processes=3, threads=1), tmp_path)
    for rank in range(3):
        assert read_json(tmp_path / f"{rank}.json") == {
            "world": 3,
            "is_main": rank == 0,
            "threads": 1,
            "sum": 6,
        }


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_the_process_that_failed_first_is_named_with_its_reason(attempt):
    """The other one fails too, for want of it."""
    told = r"process 1 of 2 failed.*ConfigError: model\.features: price not among"
    with pytest.raises(TrainingError, match=told):
        run_processes(refuse, compute_config(processes=2))


@pytest.mark.slow
def test_a_killed_process_ends_the_others():
    with pytest.raises(TrainingError, match=r"of 2 failed.*(exit code -9|closed by peer)"):
        run_processes(die, compute_config(processes=2))


@pytest.mark.slow
def test_processes_are_started_again_where_one_died(tmp_path, caplog):
    run_processes(die_once, compute_config(processes=2), tmp_path, max_restarts=1)
    assert [read_json(tmp_path / f"{rank}.json")["sum"] for rank in (0, 1)] == [3, 3]
    assert caplog.text.count("started again, at most 1 times") == 1


@pytest.mark.slow
def test_an_error_that_would_come_again_is_not_tried_again(caplog):
    with pytest.raises(TrainingError, match=r"model\.features") as failure:
        run_processes(refuse, compute_config(processes=2), max_restarts=3)
    assert not isinstance(failure.value, DeadProcessError)
    assert "started again" not in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs here")
def test_gpus_that_are_not_there_are_refused():
    with pytest.raises(ConfigError, match=r"compute\.device is cuda.*sees 0 GPUs"):
        run_processes(say_who, compute_config(device="cuda"))


def test_a_single_process_sums_its_own():
    alone = Process(Rank(0, 1), torch.device("cpu"))
    assert alone.all_reduce(torch.tensor([1, 2])).tolist() == [1, 2]
