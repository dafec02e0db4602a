import itertools
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

from dayahead.core.columns import ROLES, TIMESTAMP
from dayahead.core.errors import DataError
from dayahead.features import workflow
from dayahead.features.session_encoder import SessionEncoder
from dayahead.preprocess import shuffle, stage
from dayahead.windows.folder import WindowFolder
from support.builders import (
    RANDOM_LOG_FEATURES,
    TWO_DAYS,
    TWO_DAYS_FEATURES,
    dataset_config,
    events,
    instant,
    preprocessed,
    random_log,
    session,
    window_config,
    write_log,
)
from support.session_oracle import expected_past, expected_sessions
from support.window_folders import bytes_in

USER = {"user_id": "user_id"}
MESSY = {"columns": USER, "features": RANDOM_LOG_FEATURES, "max_length": 5}
DROP_ALL_OF_USER = {"rule": "drop_all", "scope": "user"}


def bytes_of(store, *, until="9999"):
    """Content of the window files up to a window, by name."""
    files = store.folder.glob("session_start_*")
    return {
        f.name: f.read_bytes() for f in files if f.name.partition("=")[2][: len(until)] <= until
    }


@pytest.mark.parametrize("columns", [{"title": "colour"}, {}])
def test_the_title_is_named_beside_the_features(run, columns):
    store = run(TWO_DAYS, dataset_config(features=TWO_DAYS_FEATURES, columns=columns))
    assert store.statistics.title == columns.get("title")
    text = (store.folder / "statistics.json").read_text()
    assert ('"title"' in text) == bool(columns)
    assert store.statistics.select(["price"]).title is None  # models know nothing of it


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
    price = store.statistics.features["price"]
    assert price.mean == pytest.approx((3 * 4 + 2 * 2) / 5)
    assert store.statistics.fitted_on == ["2026-01-01"]
    second = store.read(store.windows[1], "valid", ["item_id", "age"]).to_pydict()
    assert second["item_id"] == [[5, 2]]
    assert second["age"][0][0] == 0
    assert second["age"][0][1] > 0
    steps = store.manifest.steps
    assert steps["events_read"] == 8
    assert (steps["dropped_short_sessions"], steps["events_kept"]) == (1, 7)


def everything(store, window):
    """All columns of a window's train file, which holds every session of the tiny data sets."""
    return pq.read_table(store.path(window, "train"), partitioning=None)


def items_by_first_occurrence(windows):
    seen = {}
    for name in sorted(windows):
        found = [event for session in windows[name].values() for event in session["events"]]
        found.sort(key=lambda event: (event["event_time"], event["row"]))
        seen |= dict.fromkeys(event["item_id"] for event in found)
    return list(seen)


def rows_of_file(sessions, role, values):
    """What a window's file should hold, of sessions as the oracle gives them."""
    rows = [
        {
            "session_id": session_id,
            "user_id": found["user"],
            "session_start": found["start"],
            "item_id": [values.index(event["item_id"]) + 2 for event in kept],
            "event_time": [event["event_time"] for event in kept],
        }
        for session_id, found in sessions.items()
        if role in found["roles"]
        for kept in [found["train" if role == "train" else "events"]]
    ]
    return sorted(rows, key=lambda row: (row["session_start"], row["session_id"]))


@pytest.mark.parametrize(
    ("rules", "window"),
    [
        ({}, {}),
        ({"repeats": DROP_ALL_OF_USER}, {"overrun": "keep"}),
        ({"truncate": "last", "repeats": {"rule": "drop_consecutive", "scope": "user"}},
         {"unit": "hour", "min_sessions": 2}),
        ({"columns": {**USER, "session_id": None}, "gap_minutes": 45.0}, {"grace": 30}),
        ({"split": {"train": [0, 0.9], "valid": [0.5, 1]}, "truncate": "last"},
         {"grace": 20, "unit": "hour"}),
        ({}, {"unit": "minute", "length": 20, "overrun": "keep"}),
        pytest.param({"truncate": "last"}, {"unit": "hour", "length": 6, "grace": 5},
                     marks=pytest.mark.slow),
        pytest.param({}, {"length": 7}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_windows_equal_those_of_the_row_by_row_oracle(run, monkeypatch, rules, window):
    monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 60)
    dataset = dataset_config(**{**MESSY, "features": {}, **rules})
    table = random_log(seed=3, days=3)
    if dataset.columns.session_id is None:
        table = table.drop_columns(["session_id"])
    expected, dropped = expected_sessions(table, dataset, window_config(**window))
    store = run(table, dataset, parts=3, **window)

    least = window.get("min_sessions", 1)
    kept = {name: found for name, found in expected.items() if len(found) >= least}
    assert [window.name for window in store.windows] == sorted(kept)
    values = store.vocabulary("item_id")["value"].to_pylist()
    assert values == items_by_first_occurrence(kept)
    for window_, role in itertools.product(store.windows, ROLES):
        columns = ["session_id", "user_id", "session_start", "item_id", "event_time"]
        rows = rows_of_file(kept[window_.name], role, values)
        table_ = pq.read_table(store.path(window_, role), columns=columns, partitioning=None)
        assert table_.to_pylist() == rows
    steps = store.manifest.steps
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


@pytest.mark.long
def test_a_longer_log_leaves_earlier_files_byte_for_byte(run, monkeypatch):
    dataset = dataset_config(**MESSY)
    longer = random_log(seed=1, days=3)
    shorter = longer.slice(0, len(random_log(seed=1, days=2)))
    before = run(shorter, dataset, log_end="2026-01-03")
    monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 50)
    after = run(longer, dataset, log_end="2026-01-04", parts=4)
    assert len(before.windows) == 2
    assert len(after.windows) == 3
    assert bytes_of(after, until="2026-01-02") == bytes_of(before)
    assert after.statistics == before.statistics
    for column in ["item_id", "colour", "shop"]:
        known, grown = before.vocabulary(column), after.vocabulary(column)
        frozen = ["index", "value", "first_window", "first_time"]
        assert grown.select(frozen).slice(0, len(known)).equals(known.select(frozen))


@pytest.mark.long
def test_what_happens_tomorrow_changes_nothing_of_today(run):
    table = random_log(seed=2, days=2)
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


@pytest.mark.long
def test_small_windows_are_collected_and_encoded_in_batches(run, monkeypatch):
    hours = [f"2026-01-0{1 + n // 24} {n % 24:02d}:00" for n in range(60)]
    rows = [
        row for n, hour in enumerate(hours) for row in session(f"s{n}", [2 * n, 2 * n + 1], hour)
    ]
    calls = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counted(*arguments):
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(workflow, "build_workflow")
    count(shuffle.pa.ipc, "open_file")
    store = run(events(rows), dataset_config(features={"hour": {"kind": "hour"}}), unit="hour")
    assert len(store.windows) == 60
    # 50 windows are a batch, which reads the shuffle's file and builds a workflow once. The events
    # by session are a file that is read once.
    assert calls == {"build_workflow": 2, "open_file": 2 + 1}


@pytest.mark.long
def test_parts_buckets_and_workers_change_no_byte(run, monkeypatch):
    table = random_log(seed=4, days=2)
    dataset = dataset_config(**MESSY)
    one = run(table, dataset)
    monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 40)
    with LocalCluster(n_workers=3, processes=False, dashboard_address=":0") as cluster:
        many = run(table, dataset, parts=5, scheduler=cluster.scheduler_address)
    assert bytes_in(many.folder) == bytes_in(one.folder)


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path):
    write_log(tmp_path / "raw", TWO_DAYS, log_end="2026-02-01")
    preprocessed(tmp_path, dataset_config())
    with pytest.raises(DataError):
        preprocessed(tmp_path, dataset_config(), window_config(min_sessions=100))
    assert len(WindowFolder(tmp_path / "windows").windows) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "windows"]


def test_live_encoding_equals_the_window_files(run):
    table = random_log(seed=5, days=2)
    store = run(table, dataset_config(**MESSY))
    vocabularies = {name: store.vocabulary(name) for name in ["item_id", "colour", "shop"]}
    encoder = SessionEncoder(store.statistics, vocabularies)
    rows = store.read(store.windows[1], "train", None)
    for row in rows.slice(0, 4).to_pylist():
        raw = table.filter(pc.equal(table["session_id"], row["session_id"]))
        # Of a live session the last events are read, of a window's the first were written.
        raw = raw.sort_by([("event_time", "ascending"), ("row", "ascending")]).slice(0, 4)
        arrays = encoder.encode_session(raw)
        times = pa.array(row["event_time"][:4], TIMESTAMP)
        assert arrays.pop("event_time").tolist() == times.cast(pa.int64()).to_pylist()
        for name, values in arrays.items():
            assert values.tolist() == row[name][:4]


def test_statistics_are_fitted_on_fit_windows(run):
    table = random_log(seed=6, days=3)
    dataset = dataset_config(columns=USER, features={"price": RANDOM_LOG_FEATURES["price"]})
    store = run(table, dataset, fit_windows=2)
    assert store.statistics.fitted_on == ["2026-01-01", "2026-01-02"]
    mean = store.statistics.features["price"].mean
    assert mean != run(table, dataset).statistics.features["price"].mean


class TestPastEvents:
    def test_by_hand(self, run):
        table = events(
            session("a", [1, 2], "2026-01-01 09:00", user_id="u", price=1.0)
            + session("b", [9], "2026-01-01 10:00", user_id="u", price=2.0)
            + session("c", [3, 4], "2026-01-01 10:00", user_id="u", price=3.0)
            + session("d", [2, 5], "2026-01-02 09:00", user_id="u", price=4.0)
            + session("e", [1, 2], "2026-01-02 09:00", user_id="v", price=5.0)
        )
        rules = dataset_config(
            columns=USER,
            features={"price": {"kind": "number", "column": "price"}},
            past_max_length=3,
        )
        store = run(table, rules)
        first, second = (
            {row["session_id"]: row for row in everything(store, window).to_pylist()}
            for window in store.windows
        )
        assert first["a"]["bef_item_id"] == []
        # b's event is of the same instant as c's first; 9 is in no session that is kept: unknown.
        assert first["c"]["bef_item_id"] == [2, 3]
        assert second["d"]["bef_item_id"] == [1, 4, 5]
        assert second["d"]["bef_event_time"] == [instant("2026-01-01 10:00"),
                                                 instant("2026-01-01 10:00"),
                                                 instant("2026-01-01 10:01")]  # fmt: skip
        price = store.statistics.features["price"]
        assert second["d"]["bef_price"] == pytest.approx(
            [(x - price.mean) / price.std for x in (2.0, 3.0, 3.0)]
        )
        assert second["e"]["bef_item_id"] == []

    def test_a_session_of_several_users_has_the_past_of_the_first(self, run):
        table = events(
            session("a", [1, 2], "2026-01-01 09:00", user_id="u")
            + session("b", [3, 4], "2026-01-01 09:30", user_id="v")
            + session("c", [5], "2026-01-01 10:00", user_id="u")
            + session("c", [6], "2026-01-01 10:01", user_id="v")
        )
        store = run(table, dataset_config(columns=USER, past_max_length=3))
        last = everything(store, store.windows[0]).to_pylist()[-1]
        assert (last["user_id"], last["bef_item_id"]) == ("u", [2, 3])

    @pytest.mark.parametrize(
        "rules",
        [
            {},
            {"truncate": "last", "repeats": {"rule": "drop_consecutive", "scope": "user"}},
            {"repeats": DROP_ALL_OF_USER},
            {"columns": {**USER, "session_id": None}, "gap_minutes": 45.0},
        ],
    )
    def test_they_equal_those_of_the_row_by_row_oracle(self, run, monkeypatch, rules):
        monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 60)
        features = {name: RANDOM_LOG_FEATURES[name] for name in ("colour", "hour")}
        dataset = dataset_config(**{**MESSY, "features": features, **rules, "past_max_length": 4})
        table = random_log(seed=9, days=4)
        if dataset.columns.session_id is None:
            table = table.drop_columns(["session_id"])
        store = run(table, dataset, parts=2)
        expected = expected_past(table, dataset)
        vocabulary = store.vocabulary("item_id").to_pylist()
        some = 0
        for window in store.windows:
            held = {row["value"]: row["index"] for row in vocabulary
                    if row["first_window"] <= window.name}  # fmt: skip
            for row in everything(store, window).to_pylist():
                past = expected[row["session_id"]]
                assert row["bef_item_id"] == [held.get(event["item_id"], 1) for event in past]
                assert row["bef_event_time"] == [event["event_time"] for event in past]
                assert len(row["bef_colour"]) == len(row["bef_hour_sin"]) == len(past)
                some += len(past)
        assert some > 50


def test_clicks_in_the_grace_are_evaluated_but_not_trained_on(run):
    rows = [
        *session("a", [1, 2], "2026-01-01 23:50", colour="red"),
        *session("a", [9, 3], "2026-01-02 00:10", colour="blue"),
        *session("b", [3], "2026-01-01 23:59"),
        *session("b", [9], "2026-01-02 00:20"),
        *session("c", [4, 1, 9], "2026-01-02 08:00", colour="blue"),
    ]
    dataset = dataset_config(
        features={
            "colour": {"kind": "categorical", "column": "colour"},
            "age": {"kind": "item_age"},
        },
        split={"valid": [0, 1]},
    )
    store = run(events(rows), dataset, grace=60)
    first, second = store.windows
    values = store.vocabulary("item_id")["value"].to_pylist()
    assert values == [1, 2, 3, 9, 4]

    def items(window, role):
        found = store.read(window, role, ["item_id"])["item_id"].to_pylist()
        return [[values[index - 2] for index in session_] for session_ in found]

    assert items(first, "train") == [[1, 2]]  # what is left of b is too short
    assert items(first, "valid") == items(first, "all") == [[1, 2, 9, 3], [3, 9]]
    assert items(second, "train") == [[4, 1, 9]]
    assert [values[index - 2] for index in store.items_in(first, "train")] == [1, 2]
    # 9 and blue are first seen in the second day, so no model of the first knows them.
    assert store.n_known("item_id", first) == 3
    assert store.n_known("colour", first) == 1
    assert store.n_known("item_id", second) == 5
    assert store.manifest.windows[0].roles == {"train": 1, "valid": 2, "test": 0}
