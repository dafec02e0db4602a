"""All sessions of a file: layouts, faults, what is written."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dayahead.core.columns import TIMESTAMP
from dayahead.core.errors import ConfigError, DataError
from dayahead.serve import session_files
from dayahead.serve.raw_values import cast_csv_column
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.serve.session_recommendations import recommend_file
from support.window_folders import markov_days, raw_events

SESSIONS = markov_days(n_days=1, sessions_per_day=50, n_items=15, seed=3)[0]
IDS = [f"s{number}" for number in range(len(SESSIONS))]
FEATURES = ("category", "price")


def events_table(sessions=SESSIONS, ids=IDS):
    tables = [
        raw_events(items, 1, row).add_column(0, "session_id", pa.array([ids[row]] * len(items)))
        for row, items in enumerate(sessions)
    ]
    return pa.concat_tables(tables)


def lists_table(sessions=SESSIONS, ids=IDS):
    flat = raw_events([], 1).schema
    rows = [raw_events(items, 1, row).to_pydict() for row, items in enumerate(sessions)]
    columns = {f.name: pa.array([row[f.name] for row in rows], pa.list_(f.type)) for f in flat}
    return pa.table({"session_id": pa.array(ids, pa.string()), **columns})


def written(path, table):
    write = pq.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
    write(table, path)
    return path


def answers(path):
    found = {}
    for row in pq.read_table(path).to_pylist():
        found.setdefault(row["session_id"], []).append((row["rank"], row["item"], row["score"]))
    return found


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few sessions, which sessions' events cross."""
    monkeypatch.setattr(session_files, "SESSIONS_READ", 7)
    monkeypatch.setattr(session_files, "EVENTS_READ", 11)
    monkeypatch.setattr(session_files, "BLOCK_BYTES", 300)


LAYOUTS = [("events.parquet", events_table), ("events.csv", events_table),
           ("lists.parquet", lists_table)]  # fmt: skip


@pytest.mark.long
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("name", "make"), LAYOUTS)
@pytest.mark.parametrize(
    "model",
    [("gpt2", "clm", FEATURES), pytest.param(("memory", "clm", ()), marks=pytest.mark.slow)],
)
def test_every_layout_gives_what_single_calls_give(load, tmp_path, name, make, model):
    recommender = load(*model)
    table, seen = make(), []
    output = tmp_path / "found.parquet"
    summary = recommend_file(
        recommender,
        written(tmp_path / name, table),
        output,
        Options(top_k=4, exclude_seen=True),
        lambda *given: seen.append(given),
    )
    found = answers(output)
    assert [*found] == IDS
    for row, items in enumerate(SESSIONS):
        wanted = recommender.recommend_after(raw_events(items, 1, row), 4, exclude_seen=True)
        ranks, _, scores = zip(*found[IDS[row]], strict=True)
        assert ranks == tuple(range(1, len(wanted) + 1))
        assert scores == pytest.approx([score for _, score in wanted], rel=1e-5, abs=1e-5)
    assert summary.sessions == len(SESSIONS)
    assert summary.rows == len(pq.read_table(output)) == 4 * len(SESSIONS)
    assert len(seen) > 3
    assert [count for count, _ in seen] == sorted({count for count, _ in seen})
    assert seen[-1][1] == (1.0 if name.endswith(".parquet") else None)


def test_ids_alone_suffice_and_the_window_is_in_the_metadata(load, tmp_path):
    model = load()
    table = lists_table().select(["session_id", "item_id"])
    output = tmp_path / "found.parquet"
    recommend_file(model, written(tmp_path / "in.parquet", table), output, Options(top_k=1000))
    schema = pq.read_schema(output)
    assert schema.names == ["session_id", "rank", "item", "score"]
    assert schema.metadata[b"dayahead.window"] == b"2026-01-01"
    assert schema.metadata[b"dayahead.architecture"] == b"gpt2"
    for session, items in zip(IDS, SESSIONS, strict=True):
        found = {item: score for _, item, score in answers(output)[session]}
        assert found == pytest.approx(dict(model.recommend(items, 1000)), rel=1e-5, abs=1e-5)


def test_cold_sessions_are_answered_as_asked(load, tmp_path):
    model = load()
    table = lists_table([[99], [], [1, 2]], ["unknown", "empty", "known"])
    source, output = written(tmp_path / "in.parquet", table), tmp_path / "found.parquet"
    summary = recommend_file(model, source, output, Options(top_k=3))
    assert [*answers(output)] == ["known"]
    assert (summary.sessions, summary.rows, summary.cold) == (3, 3, 2)
    for cold_start in ("popularity", "model"):
        recommend_file(model, source, output, Options(top_k=3, cold_start=cold_start))
        found = answers(output)
        wanted = model.recommend([99], 3, cold_start=cold_start)
        for session in ("unknown", "empty"):
            assert [item for _, item, _ in found[session]] == [item for item, _ in wanted]


def test_numbers_as_session_ids_stay_numbers(load, tmp_path):
    table = pa.table({"session_id": [7, 8], "item_id": [[1, 2], [3]]})
    output = tmp_path / "found.parquet"
    recommend_file(load(), written(tmp_path / "in.parquet", table), output, Options(top_k=1))
    assert pq.read_table(output)["session_id"].to_pylist() == [7, 8]


def column(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


FAULTS = {
    "missing": (None, "cannot be read"),
    "no item_id": (events_table().drop_columns(["item_id"]), "item_id is missing"),
    "null session": (
        column(events_table(), "session_id", pa.nulls(len(events_table()), pa.string())),
        "has no session_id",
    ),
    "apart": (pa.concat_tables([events_table(), events_table().slice(0, 1)]),
              "session s0 are not next to each other"),
    "text ids": (column(events_table(), "item_id", pa.array(["shoe"] * len(events_table()))),
                 "item_id: expected digits"),

    "truth as ids": (column(events_table(), "item_id", pa.array([True] * len(events_table()))),
                     "item_id is bool; expected int64"),
    "times as numbers": (
        column(events_table(), "event_time", events_table()["event_time"].cast(pa.int64())),
        "event_time is int64; expected a timestamp",
    ),
    "time that cannot be": (
        column(events_table(), "event_time",
               pa.array([datetime(9999, 1, 1, tzinfo=UTC)] * len(events_table()))),
        "session s0 has an event at 9999-01-01.*expected .*from 1970 to 2199",
    ),
    "no time": (
        column(events_table(), "event_time",
               pa.nulls(len(events_table()), pa.timestamp("us", "UTC"))),
        "session s0 has an event without event_time",
    ),
    "uneven lists": (
        column(lists_table(), "event_time", lists_table()["event_time"].take(
            pa.array(np.arange(len(SESSIONS))[::-1].copy()))),
        "another number of values",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_ends_in_one_error_and_no_output(load, tmp_path, fault):
    table, message = FAULTS[fault]
    source = tmp_path / "in.parquet"
    if table is not None:
        written(source, table)
    with pytest.raises(DataError, match=message) as error:
        recommend_file(load(), source, tmp_path / "out" / "found.parquet", Options())
    assert str(source) in str(error.value)
    assert not [path for path in tmp_path.rglob("*") if "found" in path.name]


def test_a_column_that_is_there_twice_is_refused(load, tmp_path):
    parquet, text = tmp_path / "in.parquet", tmp_path / "in.csv"
    text.write_text("session_id,item_id,other,other,item_id\na,1,2,3,4\n")
    names = ["session_id", "item_id", "event_time", "event_time"]
    ids, times = pa.array(["1"]), pa.array([0], pa.timestamp("us"))
    pq.write_table(pa.Table.from_arrays([ids, ids, times, times], names), parquet)
    for source, name in ((text, "item_id"), (parquet, "event_time")):
        with pytest.raises(DataError, match=f"with the name {name}$"):
            recommend_file(load(), source, tmp_path / "o.parquet", Options())


def test_a_row_of_a_csv_without_a_session_is_refused(load, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("session_id,item_id\na,1\n,2\n,3\n")
    with pytest.raises(DataError, match="a row has no session_id"):
        recommend_file(load(), source, tmp_path / "o.parquet", Options())


def test_what_is_no_whole_number_in_a_csv_is_refused(load, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("session_id,item_id\na,1\na,0x1F\n")
    with pytest.raises(DataError, match=r"in\.csv: "):
        recommend_file(load(), source, tmp_path / "o.parquet", Options())


@pytest.mark.parametrize(
    ("given", "utc"),
    [("2026-01-01 10:00:00.25", "2026-01-01T10:00:00.25Z"),
     ("2026-01-01T10:00", "2026-01-01 12:00:00+02:00")],
)  # fmt: skip
def test_a_time_without_a_zone_in_a_csv_is_in_utc(given, utc):
    column = pa.chunked_array([[given, utc, ""]])
    first, second, missing = cast_csv_column("event_time", column, TIMESTAMP).to_pylist()
    assert first == second == datetime.fromisoformat(utc)
    assert missing is None


@pytest.mark.parametrize("time", ["16.01.2026 10:00", "2026-01-01", "2026-13-01 10:00", "5"])
def test_what_is_no_time_in_a_csv_is_refused(load, tmp_path, time):
    source = tmp_path / "in.csv"
    source.write_text(f"session_id,item_id,event_time\na,1,{time}\n")
    with pytest.raises(DataError, match=r"in\.csv: event_time: .*expected times such as") as error:
        recommend_file(load(), source, tmp_path / "o.parquet", Options())
    assert f"'{time}" in str(error.value)
    assert "assume" not in str(error.value)


def test_an_item_that_is_missing_in_a_csv_is_unknown(load, tmp_path):
    found = []
    for item in ("", "999999"):
        source = tmp_path / "in.csv"
        source.write_text(f"session_id,item_id\na,1\na,{item}\n")
        recommend_file(load(), source, tmp_path / "o.parquet", Options())
        found.append(answers(tmp_path / "o.parquet"))
    assert found[0] == found[1] != {}


def test_a_session_that_comes_again_is_found_in_any_part():
    repeats = session_files._Repeats()
    for numbers in (range(5), range(10, 5, -1), [20, 5]):
        assert repeats.first_of(pa.array(numbers)) is None
    assert np.array_equal(repeats._hashes, np.sort(repeats._hashes))
    assert repeats.first_of(pa.array([30, 7, 20])) == 7
    assert session_files._Repeats().first_of(pa.array(["a", "b", "b", "a"])) == "b"


def test_a_model_with_features_of_the_time_needs_it(load, tmp_path):
    stored = load().stored
    config = replace(stored.config, model=replace(stored.config.model, features=("hour",)))
    of_hours = Recommender(replace(stored, config=config))
    source = written(tmp_path / "in.parquet", events_table().drop_columns(["event_time"]))
    with pytest.raises(DataError, match="event_time is missing"):
        recommend_file(of_hours, source, tmp_path / "o.parquet", Options())


def test_a_file_of_another_data_set_is_refused(load, tmp_path):
    source = written(tmp_path / "in.parquet", lists_table([[99], [98]], ["a", "b"]))
    with pytest.raises(DataError, match="no item of any of the 2 sessions"):
        recommend_file(load(), source, tmp_path / "found.parquet", Options())


@pytest.mark.parametrize("output", ["found.csv", "in.parquet"])
def test_an_output_that_cannot_be_is_refused(load, tmp_path, output):
    source = written(tmp_path / "in.parquet", lists_table())
    with pytest.raises(ConfigError, match="another file"):
        recommend_file(load(), source, tmp_path / output, Options())


def test_neither_parquet_nor_csv_is_refused(load, tmp_path):
    source = tmp_path / "in.json"
    source.write_text("{}")
    with pytest.raises(DataError, match=r"ends in \.parquet or \.csv"):
        recommend_file(load(), source, tmp_path / "found.parquet", Options())


def test_no_session_gives_no_row(load, tmp_path):
    output = tmp_path / "found.parquet"
    source = written(tmp_path / "in.parquet", lists_table([], []))
    assert recommend_file(load(), source, output, Options()).rows == 0
    assert len(pq.read_table(output)) == 0
