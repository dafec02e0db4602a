"""Real logs, downloaded and preprocessed: every event is kept or counted."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from support.builders import dataset_config
from support.project_copy import ROOT

USER = {"user_id": "user_id"}


@pytest.fixture
def log_of(tmp_path, monkeypatch, real_data):
    """Return the event table of a data set of the project."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))

    def log_of(name):
        download(load_dataset(name, ROOT / "datasets"), name, tmp_path / "raw")
        return pq.read_table(tmp_path / "raw" / "events-00000.parquet")

    return log_of


@pytest.mark.long
def test_rees46_head_adds_up(run, log_of):
    table = log_of("rees46_head")
    features = {
        "category_id": {"kind": "categorical", "column": "category_id", "type": "int"},
        "brand": {"kind": "categorical", "column": "brand"},
        "price": {"kind": "log_number", "column": "price"},
    }
    dataset = dataset_config(columns=USER, features=features, max_length=100)
    store = run(table, dataset, log_end="2019-10-02", parts=3)
    manifest = store.manifest
    assert (manifest.sessions_read, manifest.sessions_kept) == (5066, 2999)
    assert manifest.steps["events_read"] == 17_434
    assert sum(manifest.steps.values()) == 2 * 17_434
    assert manifest.steps["events_kept"] == 17_434 - (5066 - 2999)
    assert len(pc.unique(table["item_id"])) == 6_493
    items = set(store.vocabulary("item_id")["value"].to_pylist())
    assert items < set(table["item_id"].to_pylist())
    brands = store.vocabulary("brand")["value"]
    assert brands.null_count == 0
    assert store.vocabulary("category_id")["value"].type == pa.int64()


@pytest.mark.slow
def test_diginetica_sample_adds_up(run, log_of):
    table = log_of("diginetica")
    store = run(table, dataset_config(columns=USER), overrun="keep", log_end="2016-07-01")
    manifest = store.manifest
    assert (manifest.sessions_read, manifest.sessions_kept) == (2986, 2053)
    assert manifest.steps["events_read"] == 12_391
    assert sum(manifest.steps.values()) == 2 * 12_391
    days = {entry.window: entry.sessions for entry in manifest.windows}
    assert (days["2016-01-07"], days["2016-01-10"], days["2016-01-11"]) == (0, 8, 3)
    kept = sum(entry.events for entry in manifest.windows if entry.state == "kept")
    assert kept == manifest.steps["events_kept"]
