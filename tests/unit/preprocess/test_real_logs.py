import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from support.builders import dataset_config

USER = {"user_id": "user_id"}


@pytest.mark.long
def test_rees46_head_adds_up(run, real_data):
    source = pa.csv.read_csv(
        real_data / "rees46-head/2019-Oct-head.csv.gz",
        convert_options=pa.csv.ConvertOptions(
            strings_can_be_null=True,
            column_types={"event_time": pa.string(), "user_id": pa.string()},
        ),
    )
    times = pc.strptime(source["event_time"], format="%Y-%m-%d %H:%M:%S UTC", unit="us")
    table = pa.table(
        {
            "session_id": source["user_session"],
            "user_id": source["user_id"],
            "item_id": source["product_id"],
            "event_time": times.cast(pa.timestamp("us", "UTC")),
            "row": pa.array(range(len(source))),
            "category": source["category_id"],
            "brand": source["brand"],
            "price": source["price"].cast(pa.float64()),
        }
    )
    features = {
        "category": {"kind": "categorical", "column": "category_id", "type": "int"},
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
    assert store.vocabulary("category")["value"].type == pa.int64()


@pytest.mark.slow
def test_diginetica_sample_adds_up(run, real_data):
    source = pa.csv.read_csv(
        real_data / "diginetica-sample/sample_train-item-views.csv.gz",
        parse_options=pa.csv.ParseOptions(delimiter=";"),
        convert_options=pa.csv.ConvertOptions(
            null_values=["NA"],
            strings_can_be_null=True,
            column_types={"session_id": pa.string(), "user_id": pa.string()},
        ),
    )
    day = source["eventdate"].cast(pa.timestamp("ms")).cast(pa.int64())
    table = pa.table(
        {
            "session_id": source["session_id"],
            "user_id": source["user_id"],
            "item_id": source["item_id"],
            "event_time": pc.add(day, source["timeframe"])
            .cast(pa.timestamp("ms", "UTC"))
            .cast(pa.timestamp("us", "UTC")),
            "row": pa.array(range(len(source))),
        }
    )
    store = run(table, dataset_config(columns=USER), overrun="keep", log_end="2016-07-01")
    manifest = store.manifest
    assert (manifest.sessions_read, manifest.sessions_kept) == (2986, 2053)
    assert manifest.steps["events_read"] == 12_391
    assert sum(manifest.steps.values()) == 2 * 12_391
    days = {entry.window: entry.sessions for entry in manifest.windows}
    assert (days["2016-01-07"], days["2016-01-10"], days["2016-01-11"]) == (0, 8, 3)
    kept = sum(entry.events for entry in manifest.windows if entry.state == "kept")
    assert kept == manifest.steps["events_kept"]
