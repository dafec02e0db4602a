"""Real clicks of a shop in windows of four minutes, from the download to the report."""

import json

import pytest

from dayahead.aggregate.findings import Folders
from dayahead.aggregate.stage import aggregate
from dayahead.config.params import flat_settings
from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from dayahead.outputs.tables import read_windows
from dayahead.preprocess.stage import preprocess
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.stage import train
from dayahead.windows.folder import WindowFolder
from support.project_copy import ROOT
from support.tiny_settings import tiny_study

NAMES = [f"2019-10-01T02{minute}" for minute in range(16, 48, 4)]
SECTIONS = {
    "window": {"unit": "minute", "length": 4, "min_sessions": 100, "overrun": "keep"},
    "model": {"architecture": "memory", "catalogue": "full", "features": ["category_id"]},
    "memory": {"n_candidates": 20, "epochs": 1, "first_epochs": 1},
    "evaluation": {"split": "all", "candidates": "all"},
}


@pytest.mark.slow
def test_rees46_head_in_windows_of_minutes(tmp_path, real_data, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", str(real_data))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    dataset = load_dataset("rees46_head", ROOT / "datasets")
    folder, raw = tmp_path / "windows", tmp_path / "raw"
    study = tiny_study(folder, tmp_path / "out", SECTIONS)
    params = study.params
    download(dataset, "rees46_head", raw)
    preprocess(raw, folder, dataset, params.window, params.preprocess, params.machine)

    store = WindowFolder(folder)
    assert [window.name for window in store.windows] == NAMES
    assert store.windows[0].start == "2019-10-01T02:16:00Z"
    assert store.path(store.windows[0], "test").name == (
        "session_start_minute=2019-10-01T0216-test.parquet"
    )
    states = {entry.window: entry.state for entry in store.manifest.windows}
    assert (states["2019-10-01T0212"], states["2019-10-01T0248"]) == ("dropped", "open")
    assert store.statistics.window_length == 240_000_000

    train(study)
    train_baselines(study)
    rows = read_windows(study.results / "windows.csv", params.evaluation.cutoffs)
    assert [row.window for row in rows] == NAMES[1:]
    assert [row.n_sessions for row in rows] == [len(sessions(store, n)) for n in range(1, 8)]
    settings = flat_settings(params)
    aggregate(Folders(study.results, folder, raw), params.evaluation.cutoffs, settings)
    assert json.loads((study.results / "aod.json").read_text())["n_windows"] == 7
    assert "windows of 4 minutes" in (study.results / "report.html").read_text()


def sessions(store, position):
    return store.read(store.windows[position], "all", ["session_id"])
