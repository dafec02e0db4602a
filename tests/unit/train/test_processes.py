"""One process and two: the same steps, losses and ranks."""

from itertools import chain

import numpy as np
import pytest

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from dayahead.outputs.tables import read_windows
from dayahead.train.stage import train
from support.outputs import without_times
from support.process_studies import DAYS, N_SESSIONS, N_STEPS, VARIANTS, every_variant
from support.tiny_settings import BACKBONES, compute_config, evaluated_windows, ranks_of, tiny_study
from support.window_folders import bytes_in, day, markov_days, write_window_folder
from support.worker_studies import run_and_record


@every_variant
def test_every_step_has_the_same_loss(runs, name):
    one, two = (read_json(folder / f"{name}-0.json")["losses"] for folder in runs)
    assert len(one) == (0 if name in {*BASELINES, MEMORY} else len(DAYS) * 2 * N_STEPS)
    assert two == pytest.approx(one, rel=1e-5)
    assert read_json(runs[1] / f"{name}-1.json")["losses"] == two


@every_variant
def test_every_session_is_read_by_one_process_once_per_epoch(runs, name):
    one = read_json(runs[0] / f"{name}-0.json")["sessions"]
    two = [read_json(runs[1] / f"{name}-{rank}.json")["sessions"] for rank in (0, 1)]
    for whole, first, second in zip(one, *two, strict=True):
        assert len(first) == len(second)
        assert sorted(session for session in first + second if session >= 0) == sorted(whole)
    if name not in {*BASELINES, MEMORY}:
        assert sorted(chain(*one[:N_STEPS])) == list(range(N_SESSIONS))
        assert [-1] in two[1]


@every_variant
def test_ranks_and_metrics_are_the_same(runs, name):
    one, two = (folder / name for folder in runs)
    assert evaluated_windows(one) == evaluated_windows(two)
    for window in evaluated_windows(one):
        assert np.array_equal(ranks_of(one, window), ranks_of(two, window))
    rows = [read_windows(out / "results" / "windows.csv", [1, 5]) for out in (one, two)]
    assert [row.metrics for row in rows[0]] == [row.metrics for row in rows[1]]
    lists = [(out / "results" / "lists.csv").read_text() for out in (one, two)]
    assert lists[0] == lists[1]
    assert lists[0].count("\n") == 1 + len(rows[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in VARIANTS if name in (*BASELINES, MEMORY))])
def test_a_model_that_counts_is_the_same_to_the_last_bit(runs, name):
    one, two = (folder / name / "models" / "model.safetensors" for folder in runs)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "-sharded"])
def test_two_processes_resume_from_the_cache(both_ways, kind):
    _, folder = both_ways(True)
    whole, resumed = (bytes_in(folder / f"{name}{kind}") for name in ("whole", "resumed"))
    assert without_times(resumed) == without_times(whole)
    names = [f"{name}{kind}" for name in ("whole", "short", "resumed")]
    n_steps = [len(read_json(folder / f"{name}-1.json")["losses"]) for name in names]
    assert n_steps == [3 * N_STEPS, 2 * N_STEPS, N_STEPS]


@pytest.mark.slow
def test_one_process_resumes_what_two_left(both_ways, tmp_path, fits):
    _, folder = both_ways(True)
    windows, cache = folder.parent / "windows", folder / "cache-no-dropout"
    fits.clear()
    train(tiny_study(windows, tmp_path / "resumed", cache=cache))
    assert fits == [day(2)]
    train(tiny_study(windows, tmp_path / "whole"))
    for window in (day(1), day(2)):
        resumed, whole = (ranks_of(tmp_path / name, window) for name in ("resumed", "whole"))
        assert np.array_equal(resumed, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), BACKBONES)
def test_two_processes_agree_with_one_over_300_steps(tmp_path, architecture, task):
    days = markov_days(n_days=4, sessions_per_day=1201, n_items=300)
    windows = write_window_folder(tmp_path / "windows", days)
    sections = {
        # Item embeddings as far apart as the presets': closer ones tie but for rounding.
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
    for one, two in zip(*ranks, strict=True):
        assert (one == two).mean() >= 0.999
    for metric in rows[0][0].metrics:
        first, second = (np.mean([row.metrics[metric] for row in table]) for table in rows)
        assert second == pytest.approx(first, abs=5e-4)
