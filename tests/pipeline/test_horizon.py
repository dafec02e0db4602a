"""From fits that are evaluated on later windows to the table and the report."""

import csv

import numpy as np
import pytest

from dayahead.aggregate.ages import STALENESS
from dayahead.aggregate.findings import Folders
from dayahead.aggregate.stage import aggregate
from dayahead.config.params import flat_settings
from dayahead.core.errors import DataError
from dayahead.outputs.ranks_by_window import read_later_ranks, write_later_ranks
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.stage import train
from support.live_windows import spread_sessions
from support.results_folders import write_raw_manifest
from support.tiny_settings import evaluated_windows, ranks_of, tiny_study
from support.window_folders import day, markov_days, write_window_folder

N_DAYS = 7
SECTIONS = {
    "model": {"architecture": "memory"},
    "live": {"tick": "1h"},
    "memory": {"n_candidates": 10, "epochs": 1, "first_epochs": 1},
    "evaluation": {"horizon": 2, "split": "all", "positions": "all"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study with ticks and a horizon of 2, and its folders, whose results are aggregated."""
    root = tmp_path_factory.mktemp("horizon")
    days = markov_days(N_DAYS, sessions_per_day=12, n_items=15)
    folder = spread_sessions(write_window_folder(root / "windows", days))
    study = tiny_study(folder, root / "out", SECTIONS)
    write_raw_manifest(root / "raw")
    train(study)
    train_baselines(study)
    folders = Folders(study.results, folder, root / "raw")
    return study, folders, aggregated(study, folders)


def aggregated(study, folders):
    return aggregate(folders, study.params.evaluation.cutoffs, flat_settings(study.params))


def own_ranks(study):
    out = study.results.parent
    return {name: ranks_of(out, name) for name in evaluated_windows(out)}


@pytest.mark.long
def test_the_table_has_every_target_by_each_age(finished):
    study, _, _ = finished
    with (study.results / STALENESS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    of_fit, of_tick = ([row for row in rows if row["since"] == since] for since in ("fit", "tick"))
    sizes = {name: len(ranks) for name, ranks in own_ranks(study).items()}
    n_own = sum(sizes.values())
    assert sum(int(row["n_targets"]) for row in of_fit) == 2 * n_own - sizes[day(1)]
    assert sum(int(row["n_targets"]) for row in of_tick) == n_own
    # A session starts every hour, 12 a day, and every click is 5 minutes after the one before.
    assert [float(row["from_hours"]) for row in of_fit] == [*range(12), *range(24, 36)]
    assert len(of_tick) < 10


def test_the_report_has_charts_and_the_sentence(finished):
    study, _, found = finished
    assert found.ageing.n_windows == N_DAYS - 2
    assert len(found.ageing.figures) == 6 + 3 * (found.ageing.first_half is not None)
    text = (study.results / "report.html").read_text()
    assert "by the time since the last fit" in text
    assert "by the time since the last tick" in text
    assert "Fitting half as often" in text
    assert f"over {N_DAYS - 2} windows that two models have ranked" in text


def test_later_ranks_of_another_run_are_rejected(finished):
    study, folders, _ = finished
    later = read_later_ranks(study.results, 2, own_ranks(study))
    first = next(iter(later))
    write_later_ranks(study.results, 2, {**later, first: np.append(later[first], 1)})
    with pytest.raises(DataError, match=r"horizon/2\.parquet: expected the windows, targets and"):
        aggregated(study, folders)
