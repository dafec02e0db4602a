import itertools
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from builders import (
    RANDOM_LOG_FEATURES,
    dataset_config,
    events,
    instant,
    preprocess_config,
    random_log,
    session,
    window_config,
    write_log,
)
from distributed import LocalCluster
from merlin.schema import Tags
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata
from session_oracle import expected_sessions

from dayahead.columns import ROLES
from dayahead.data import preprocessing
from dayahead.data.features import encode_session
from dayahead.data.preprocessing import preprocess
from dayahead.data.windows import WindowStore
from dayahead.errors import ConfigError, DataError

USER = {"user_id": "user_id"}
MESSY = {"columns": USER, "features": RANDOM_LOG_FEATURES, "max_length": 5}
DROP_ALL_OF_USER = {"rule": "drop_all", "scope": "user"}


@pytest.fixture
def run(tmp_path, dask_address):
    """Preprocess a table of events and open what was written."""
    numbers = itertools.count()

    def run(table, dataset, *, parts=1, log_end="2026-02-01", fit_windows=1, **window):
        root = tmp_path / str(next(numbers))
        write_log(root / "raw", table, parts=parts, log_end=log_end)
        config = preprocess_config(scheduler=dask_address, fit_windows=fit_windows)
        preprocess(root / "raw", root / "windows", dataset, window_config(**window), config)
        return WindowStore(root / "windows")

    return run


def bytes_of(store, *, until="9999"):
    """Content of the window files up to a window, by name."""
    files = store.folder.glob("session_start_*")
    return {
        f.name: f.read_bytes() for f in files if f.name.partition("=")[2][: len(until)] <= until
    }


def whole_folder(store):
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(store.folder)): path.read_bytes() for path in files}


TWO_DAYS = events(
    session("b", [30, 10], "2026-01-01 09:00", colour="red", price=2.0)
    + session("a", [10, 20, 10], "2026-01-01 09:00", colour=None, price=4.0)
    + session("c", [40, 30], "2026-01-02 00:00", colour="blue", price=3.0)
    + session("d", [40], "2026-01-02 05:00", colour="blue", price=3.0)
)
TWO_DAYS_FEATURES = {
    "colour": {"kind": "categorical", "column": "colour"},
    "price": {"kind": "number", "column": "price"},
    "hour": {"kind": "hour"},
    "age": {"kind": "item_age"},
}


def test_a_small_log_by_hand(run):
    # Times tie across sessions a and b, so the row number decides: 30 of b comes before 10 of a.
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES, split={"valid": [0, 1]}))
    assert [window.name for window in store.windows] == ["2026-01-01", "2026-01-02"]
    assert store.vocabulary("item_id")["value"].to_pylist() == [30, 10, 20, 40]
    assert store.vocabulary("item_id")["events"].to_pylist() == [2, 3, 1, 1]
    assert store.vocabulary("colour")["value"].to_pylist() == ["red", "blue"]
    first = pq.read_table(store.path(store.windows[0], "train"), partitioning=None).to_pydict()
    assert first["session_id"] == ["a", "b"]
    assert first["user_id"] == [None, None]
    assert first["item_id"] == [[3, 4, 3], [2, 3]]
    assert first["colour"] == [[1, 1, 1], [2, 2]]
    price = store.statistics["features"]["price"]
    assert price["mean"] == pytest.approx((3 * 4 + 2 * 2) / 5)
    assert store.statistics["fitted_on"] == ["2026-01-01"]
    second = store.read(store.windows[1], "valid", ["item_id", "age"]).to_pydict()
    assert second["item_id"] == [[5, 2]]
    assert second["age"][0][0] == 0
    assert second["age"][0][1] > 0
    steps = store.listing["steps"]
    assert steps["events_read"] == 8
    assert (steps["dropped_short_sessions"], steps["events_kept"]) == (1, 7)


def test_columns_and_types_are_those_of_the_design(run):
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES, split={"test": [0, 0]}))
    expected = pa.schema(
        [
            pa.field("session_id", pa.string(), nullable=False),
            pa.field("user_id", pa.string()),
            pa.field("session_start", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("item_id", pa.list_(pa.int32())),
            pa.field("event_time", pa.list_(pa.timestamp("us", "UTC"))),
            pa.field("colour", pa.list_(pa.int32())),
            *(
                pa.field(name, pa.list_(pa.float32()))
                for name in ["price", "hour_sin", "hour_cos", "age"]
            ),
        ]
    )
    for window, role in itertools.product(store.windows, ROLES):
        table = pq.read_table(store.path(window, role), partitioning=None)
        assert table.schema.equals(expected)  # a role without a session, too
    assert len(store.read(store.windows[0], "test", ["item_id"])) == 0


def test_the_merlin_schema_has_tags_and_domains(run):
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES))
    text = (store.folder / "schema.pbtxt").read_text()
    schema = TensorflowMetadata.from_proto_text(text).to_merlin_schema()
    assert schema.column_names[:3] == ["session_id", "user_id", "session_start"]
    assert {Tags.ITEM, Tags.ID, Tags.CATEGORICAL} <= set(schema["item_id"].tags)
    assert schema["item_id"].int_domain.max == 5
    assert schema["item_id"].is_ragged
    assert schema["item_id"].value_count.max == 20
    assert schema.select_by_tag(Tags.CONTINUOUS).column_names == [
        "price", "hour_sin", "hour_cos", "age",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "window"),
    [
        ({}, {}),
        ({"repeats": DROP_ALL_OF_USER}, {"overrun": "keep"}),
        ({"truncate": "last", "repeats": {"rule": "drop_consecutive", "scope": "user"}},
         {"unit": "hour", "min_sessions": 2}),
        ({"columns": {**USER, "session_id": None}, "gap_minutes": 45.0}, {"grace": 30}),
    ],
)  # fmt: skip
def test_what_is_written_is_what_one_row_after_the_other_gives(run, monkeypatch, rules, window):
    monkeypatch.setattr(preprocessing, "EVENTS_PER_BUCKET", 60)
    dataset = dataset_config(**{**MESSY, **rules})
    table = random_log(seed=3, days=3)
    if dataset.columns.session_id is None:
        table = table.drop_columns(["session_id"])
    expected, dropped = expected_sessions(table, dataset, window_config(**window))
    store = run(table, dataset, parts=3, **window)

    least = window.get("min_sessions", 1)
    kept = {name: found for name, found in expected.items() if len(found) >= least}
    assert [window.name for window in store.windows] == sorted(kept)
    values = store.vocabulary("item_id")["value"].to_pylist()
    for place in store.windows:
        columns = ["session_id", "user_id", "session_start", "item_id", "event_time"]
        for role in ROLES:
            rows = [
                {
                    "session_id": session_id,
                    "user_id": found["user"],
                    "session_start": found["start"],
                    "item_id": [values.index(event["item_id"]) + 2 for event in found["events"]],
                    "event_time": [event["event_time"] for event in found["events"]],
                }
                for session_id, found in kept[place.name].items()
                if role in found["roles"]
            ]
            rows.sort(key=lambda row: (row["session_start"], row["session_id"]))
            assert store.read(place, role, columns).to_pylist() == rows
    steps = store.listing["steps"]
    lost = sum(
        len(s["events"])
        for name, found in expected.items()
        for s in found.values()
        if name not in kept
    )
    assert +Counter(steps) == +Counter(
        {f"dropped_{step}": n for step, n in dropped.items()}
        | {"events_read": len(table), "dropped_windows": lost}
        | {"events_kept": len(table) - sum(dropped.values()) - lost}
    )


@pytest.mark.parametrize("rules", [{}, {"repeats": DROP_ALL_OF_USER}])
def test_a_longer_log_leaves_earlier_files_byte_for_byte(run, monkeypatch, rules):
    dataset = dataset_config(**{**MESSY, **rules})
    longer = random_log(seed=1, days=5)
    shorter = longer.slice(0, len(random_log(seed=1, days=3)))
    before = run(shorter, dataset, log_end="2026-01-04")
    monkeypatch.setattr(preprocessing, "EVENTS_PER_BUCKET", 50)
    after = run(longer, dataset, log_end="2026-01-06", parts=4)
    assert len(before.windows) == 3
    assert len(after.windows) == 5
    assert bytes_of(after, until="2026-01-03") == bytes_of(before)
    assert after.statistics == before.statistics
    for column in ["item_id", "colour", "shop"]:
        known, grown = before.vocabulary(column), after.vocabulary(column)
        frozen = ["index", "value", "first_window", "first_time"]
        assert grown.select(frozen).slice(0, len(known)).equals(known.select(frozen))


def test_what_happens_tomorrow_changes_nothing_of_today(run):
    table = random_log(seed=2, days=3)
    midnight = pa.scalar(instant("2026-01-02"), table["event_time"].type)
    tomorrow = pc.greater_equal(table["event_time"], midnight)
    other = pc.if_else(tomorrow, pc.add(table["item_id"], 100), table["item_id"])
    dearer = pc.if_else(tomorrow, pc.multiply(table["price"], 7), table["price"])
    changed = table.set_column(table.column_names.index("item_id"), "item_id", other)
    changed = changed.set_column(changed.column_names.index("price"), "price", dearer)
    dataset = dataset_config(**MESSY)
    stores = run(table, dataset), run(changed, dataset)
    today = [bytes_of(store, until="2026-01-01") for store in stores]
    assert len(today[0]) == 3
    assert today[0] == today[1]
    assert bytes_of(stores[0]) != bytes_of(stores[1])
    assert stores[0].statistics == stores[1].statistics


def test_parts_buckets_and_workers_change_no_byte(run, tmp_path, monkeypatch):
    table = random_log(seed=4, days=3)
    dataset = dataset_config(**MESSY)
    one = run(table, dataset)
    monkeypatch.setattr(preprocessing, "EVENTS_PER_BUCKET", 40)
    write_log(tmp_path / "raw", table, parts=5, log_end="2026-02-01")
    with LocalCluster(n_workers=3, processes=False, dashboard_address=":0") as cluster:
        config = preprocess_config(scheduler=cluster.scheduler_address)
        preprocess(tmp_path / "raw", tmp_path / "windows", dataset, window_config(), config)
    assert whole_folder(WindowStore(tmp_path / "windows")) == whole_folder(one)


def test_live_encoding_equals_the_window_files(run):
    table = random_log(seed=5, days=2)
    store = run(table, dataset_config(**MESSY))
    vocabularies = {name: store.vocabulary(name) for name in ["item_id", "colour", "shop"]}
    written = store.read(store.windows[1], "train", None)
    for row in written.slice(0, 4).to_pylist():
        raw = table.filter(pc.equal(table["session_id"], row["session_id"]))
        live = encode_session(raw, store.statistics, vocabularies)
        for name in live.column_names:
            values = live[name][0].as_py()[: len(row[name])]
            assert values == pytest.approx(row[name]) if name != "event_time" else True


def test_thin_windows_are_dropped_and_the_last_part_stays_open(run):
    table = events(
        [row for n in range(3) for row in session(f"a{n}", [1, 2], f"2026-01-01 0{n}:00")]
        + session("b0", [7, 8], "2026-01-02 01:00")
        + [row for n in range(3) for row in session(f"c{n}", [3, 1], f"2026-01-04 0{n}:00")]
        + [row for n in range(3) for row in session(f"d{n}", [9, 1], f"2026-01-05 0{n}:00")]
    )
    store = run(table, dataset_config(), min_sessions=3, log_end="2026-01-05 12:00")
    entries = store.listing["windows"]
    assert [(entry["window"], entry["state"], entry["sessions"]) for entry in entries] == [
        ("2026-01-01", "kept", 3),
        ("2026-01-02", "dropped", 1),
        ("2026-01-03", "dropped", 0),
        ("2026-01-04", "kept", 3),
        ("2026-01-05", "open", 3),
    ]
    assert entries[1]["why"] == "1 sessions, window.min_sessions asks for 3"
    assert "2026-01-05T12:00:00Z" in entries[4]["why"]
    # Nothing of a dropped or open window is known.
    assert store.vocabulary("item_id")["value"].to_pylist() == [1, 2, 3]
    assert store.vocabulary("item_id")["events"].to_pylist() == [6, 3, 3]
    assert store.listing["steps"]["dropped_windows"] == 8
    assert {path.name[19:29] for path in store.folder.glob("session_*")} == {
        "2026-01-01",
        "2026-01-04",
    }


def test_a_window_stands_only_when_its_grace_is_over(run):
    table = events(session("a", [1, 2], "2026-01-01 09:00"))
    with pytest.raises(DataError, match="1 are not over when the log ends"):
        run(table, dataset_config(), grace=60, log_end="2026-01-02 00:59")
    store = run(table, dataset_config(), grace=60, log_end="2026-01-02 01:00")
    assert [window.name for window in store.windows] == ["2026-01-01"]


def test_statistics_are_fitted_on_as_many_windows_as_asked(run):
    table = random_log(seed=6, days=3)
    store = run(table, dataset_config(**MESSY), fit_windows=2)
    assert store.statistics["fitted_on"] == ["2026-01-01", "2026-01-02"]
    mean = store.statistics["features"]["price"]["mean"]
    assert mean != run(table, dataset_config(**MESSY)).statistics["features"]["price"]["mean"]


def test_string_items(run):
    rows = [{**row, "item_id": f"i{row['item_id']}"} for row in session("a", [3, 1], "2026-01-01")]
    store = run(
        events(rows, item_type=pa.string()),
        dataset_config(columns={"item_id": {"column": "item_id"}}),
    )
    assert store.catalogue_values().to_pylist() == ["i3", "i1"]


class TestRefusals:
    def test_no_log(self, tmp_path):
        with pytest.raises(DataError, match=r"raw/manifest\.json: not a readable event table"):
            preprocess(
                tmp_path / "raw",
                tmp_path / "windows",
                dataset_config(),
                window_config(),
                preprocess_config(),
            )

    def test_an_empty_log(self, run):
        with pytest.raises(DataError, match="expected events, found none"):
            run(TWO_DAYS.slice(0, 0), dataset_config())

    def test_a_log_of_another_data_set(self, run):
        with pytest.raises(DataError, match="columns user_id of the data set's file are missing"):
            run(TWO_DAYS, dataset_config(columns=USER))

    def test_no_window_stands(self, run):
        message = r"none of 2 windows stands: 2 have fewer.*min_sessions \(100; the fullest has 2\)"
        with pytest.raises(DataError, match=message):
            run(TWO_DAYS, dataset_config(), min_sessions=100)

    def test_too_few_windows_to_fit_on(self, run):
        with pytest.raises(ConfigError, match="fit_windows: 3 windows to fit on, but only 2 stand"):
            run(TWO_DAYS, dataset_config(), fit_windows=3)

    def test_no_train_session_to_fit_on(self, run):
        with pytest.raises(DataError, match="no train session in 2026-01-01"):
            run(TWO_DAYS, dataset_config(split={"train": [0, 0]}))

    def test_gap_sessions_of_no_user(self, run):
        table = events(session("a", [1, 2], "2026-01-01", user_id=None)).drop_columns(
            ["session_id"]
        )
        by_gap = dataset_config(columns={**USER, "session_id": None}, gap_minutes=30)
        with pytest.raises(DataError, match="no event names a user"):
            run(table, by_gap)

    def test_a_failure_leaves_the_old_folder_and_nothing_else(self, tmp_path, dask_address):
        write_log(tmp_path / "raw", TWO_DAYS, log_end="2026-02-01")
        config = preprocess_config(scheduler=dask_address)
        for least in (1, 100):
            window = window_config(min_sessions=least)
            try:
                preprocess(tmp_path / "raw", tmp_path / "windows", dataset_config(), window, config)
            except DataError:
                assert least == 100
        assert len(WindowStore(tmp_path / "windows").windows) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "windows"]


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
    listing = store.listing
    assert (listing["sessions_read"], listing["sessions_kept"]) == (5066, 2999)
    assert listing["steps"]["events_read"] == 17_434
    assert sum(listing["steps"].values()) == 2 * 17_434
    assert listing["steps"]["events_kept"] == 17_434 - (5066 - 2999)
    assert len(pc.unique(table["item_id"])) == 6_493
    items = set(store.catalogue_values().to_pylist())
    assert items < set(table["item_id"].to_pylist())
    brands = store.vocabulary("brand")["value"]
    assert brands.null_count == 0
    assert store.vocabulary("category")["value"].type == pa.int64()


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
    listing = store.listing
    assert (listing["sessions_read"], listing["sessions_kept"]) == (2986, 2053)
    assert listing["steps"]["events_read"] == 12_391
    assert sum(listing["steps"].values()) == 2 * 12_391
    days = {entry["window"]: entry["sessions"] for entry in listing["windows"]}
    assert (days["2016-01-07"], days["2016-01-10"], days["2016-01-11"]) == (0, 8, 3)
    kept = sum(entry["events"] for entry in listing["windows"] if entry["state"] == "kept")
    assert kept == listing["steps"]["events_kept"]
