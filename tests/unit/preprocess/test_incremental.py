"""A longer log goes on from what is in the store, and comes to what a fresh run comes to."""

import json
import os
import random
import shutil
import time
from itertools import chain, product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dayahead.core.columns import EVENT_TIME, ROW
from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_parquet
from dayahead.preprocess import build
from dayahead.preprocess import stage as preprocessing
from dayahead.preprocess.build import LateRowsError
from support.builders import (
    RANDOM_LOG_FEATURES,
    dataset_config,
    events,
    random_log,
    session,
)
from support.window_folders import bytes_in

USER = {"user_id": "user_id"}
FEATURES = {name: RANDOM_LOG_FEATURES[name] for name in ("colour", "shop", "price", "age")}
"""What a longer log may change; the hour and the weekday of an event are its own."""
MESSY = {"columns": USER, "features": FEATURES, "max_length": 5}
BY_GAP = {"columns": {**USER, "session_id": None}, "gap_minutes": 45.0}
RULES = {
    "by session": {},
    "drop_consecutive of a user": {"repeats": {"rule": "drop_consecutive", "scope": "user"}},
    "drop_all of a user": {"repeats": {"rule": "drop_all", "scope": "user"}},
    "gaps": BY_GAP,
    "gaps, drop_consecutive": BY_GAP | {"repeats": {"rule": "drop_consecutive", "scope": "user"}},
    "past": {"past_max_length": 3},
    "gaps, past, last": BY_GAP | {"past_max_length": 4, "truncate": "last",
                                  "repeats": {"rule": "drop_consecutive", "scope": "session"}},
}  # fmt: skip
WINDOWS = {
    "days": {},
    "grace": {"grace": 90},
    "hours": {"unit": "hour", "min_sessions": 2},
}
AT_ONCE = {
    ("by session", "grace"),
    ("drop_consecutive of a user", "hours"),
    ("drop_all of a user", "days"),
    ("gaps", "grace"),
    ("gaps, drop_consecutive", "days"),
    ("past", "days"),
    ("gaps, past, last", "hours"),
}
"""Each of the rules once, each kind of window twice at least; the other pairs are slow."""
READ_AT_ONCE = {"by session", "drop_all of a user", "gaps, past, last"}
"""What keeps the most of its past, by each way of cutting sessions."""


def pairs():
    for rules, window in product(RULES, WINDOWS):
        marks = () if (rules, window) in AT_ONCE else pytest.mark.slow
        yield pytest.param(RULES[rules], WINDOWS[window], id=f"{rules}-{window}", marks=marks)


def by_day(table):
    """The rows of each day as an export at midnight has them: a source file each."""
    days = pc.floor_temporal(table[EVENT_TIME], unit="day")
    files = []
    for day in sorted(set(days.to_pylist())):
        rows = table.filter(pc.equal(days, pa.scalar(day, days.type)))
        numbers = pa.array(range(len(rows)), pa.int64())
        files.append(rows.set_column(rows.column_names.index(ROW), ROW, numbers))
    return files


def midnight(n_days):
    return f"2026-01-{1 + n_days:02d}"


def told(caplog):
    return " ".join(record.getMessage() for record in caplog.records)


@pytest.fixture
def log():
    return by_day(random_log(seed=11, days=5))


def without_sessions(files, dataset):
    if dataset.columns.session_id is not None:
        return files
    return [table.drop_columns(["session_id"]) for table in files]


@pytest.mark.parametrize(("rules", "window"), [*pairs()])
def test_day_after_day_comes_to_what_one_run_comes_to(run, log, rules, window):
    dataset = dataset_config(**{**MESSY, **rules})
    log = without_sessions(log, dataset)
    run(log[:2], dataset, store="kept", log_end=midnight(2), **window)
    for n_days in (3, 5):
        grown = run(log[:n_days], dataset, store="kept", log_end=midnight(n_days), **window)
        fresh = run(log[:n_days], dataset, log_end=midnight(n_days), **window)
        assert bytes_in(grown.folder) == bytes_in(fresh.folder)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(rules, id=name, marks=() if name in READ_AT_ONCE else pytest.mark.slow)
        for name, rules in RULES.items()
    ],
)
def test_no_raw_row_of_an_older_window_is_read_again(run, log, rules, monkeypatch):
    dataset = dataset_config(**{**MESSY, **rules})
    log = without_sessions(log, dataset)
    run(log[:4], dataset, store="kept", log_end=midnight(4))
    fresh = run(log, dataset, log_end=midnight(5))

    # The bytes of the older parts are gone; only what the manifest says of them is left.
    blank = preprocessing.read_event_log

    def read_event_log(raw, config):
        found = blank(raw, config)
        for part in found.parts[:4]:
            write_parquet(part.path, pq.read_table(part.path).slice(0, 0))
        return found

    monkeypatch.setattr(preprocessing, "read_event_log", read_event_log)
    grown = run(log, dataset, store="kept", log_end=midnight(5))
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)


@pytest.mark.parametrize("rules", [RULES["by session"], RULES["gaps, past, last"]])
def test_buckets_change_nothing(run, log, rules, monkeypatch):
    """Nor do buckets that leave the same, such as nothing, for the next run."""
    dataset = dataset_config(**{**MESSY, **rules})
    log = without_sessions(log, dataset)
    fresh = run(log[:5], dataset, log_end=midnight(5))
    monkeypatch.setattr(build, "EVENTS_AT_ONCE", 40)
    monkeypatch.setattr(build, "A_LOT", 10)
    for n_days in (3, 5):
        grown = run(log[:n_days], dataset, store="kept", log_end=midnight(n_days))
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)


def test_the_same_log_again_needs_no_cluster(run, log, monkeypatch):
    dataset = dataset_config(**MESSY)
    first = run(log, dataset, store="kept", log_end=midnight(5))
    monkeypatch.setattr(build, "dask_client", None)
    again = run(log, dataset, store="kept", log_end=midnight(5))
    assert bytes_in(again.folder) == bytes_in(first.folder)


def test_another_setting_does_not_take_what_is_not_its_own(run, log):
    run(log, dataset_config(**MESSY), store="kept", log_end=midnight(5))
    other = dataset_config(**{**MESSY, "max_length": 3})
    again = run(log, other, store="kept", log_end=midnight(5))
    assert bytes_in(again.folder) == bytes_in(run(log, other, log_end=midnight(5)).folder)


def test_a_log_that_lost_a_part_is_another_log(run, log):
    dataset = dataset_config(**MESSY)
    run(log, dataset, store="kept", log_end=midnight(5))
    shorter = run(log[1:], dataset, store="kept", log_end=midnight(5))
    assert bytes_in(shorter.folder) == bytes_in(run(log[1:], dataset, log_end=midnight(5)).folder)


class TestLateRows:
    late = events(session("late", [1, 2, 3], "2026-01-02 09:00", user_id="u1"))

    @pytest.fixture
    def dataset(self):
        return dataset_config(columns=USER)

    @pytest.fixture
    def plain(self, log):
        return [table.select(["session_id", "user_id", "item_id", "event_time", "row"])
                for table in log]  # fmt: skip

    @pytest.mark.parametrize("place", [0, 2, 5])
    def test_they_are_refused_with_window_and_count(self, run, plain, dataset, place):
        before = run(plain, dataset, store="kept", log_end=midnight(5))
        files = [*plain[:place], self.late, *plain[place:]]
        message = r"3 events came for 1 windows .* 2026-01-02 \(3 events\).*preprocess\.rebuild"
        with pytest.raises(LateRowsError, match=message):
            run(files, dataset, store="kept", log_end=midnight(5))
        again = run(plain, dataset, store="kept", log_end=midnight(5))
        assert bytes_in(again.folder) == bytes_in(before.folder)

    def test_rebuild_writes_them_and_leaves_the_windows_before(self, run, plain, dataset):
        before = bytes_in(run(plain, dataset, store="kept", log_end=midnight(5)).folder)
        files = [*plain, self.late]
        rebuilt = run(files, dataset, store="kept", log_end=midnight(5), rebuild=True)
        assert bytes_in(rebuilt.folder) == bytes_in(run(files, dataset, log_end=midnight(5)).folder)
        after = bytes_in(rebuilt.folder)
        first = "session_start_date=2026-01-01-train.parquet"
        second = "session_start_date=2026-01-02-train.parquet"
        assert after[first] == before[first]
        assert after[second] != before[second]
        # From here on they are no longer late.
        again = run(files, dataset, store="kept", log_end=midnight(5))
        assert bytes_in(again.folder) == after

    def test_a_session_that_goes_on_past_its_window_is_cut_not_late(self, run, plain, dataset):
        run(plain, dataset, store="kept", log_end=midnight(5))
        of_day_one = plain[0]["session_id"][0].as_py()
        more = events(session(of_day_one, [7, 8], "2026-01-06 09:00", user_id="u1"))
        more_too = events(session("new", [7, 8], "2026-01-06 09:00", user_id="u1"))
        files = [*plain, more, more_too]
        grown = run(files, dataset, store="kept", log_end=midnight(6))
        assert bytes_in(grown.folder) == bytes_in(run(files, dataset, log_end=midnight(6)).folder)
        assert grown.manifest.windows[0].overrun_events >= 2

    def test_under_keep_it_is_late(self, run, plain, dataset):
        rules = {"log_end": midnight(5), "overrun": "keep", "store": "kept"}
        run(plain, dataset, **rules)
        of_day_one = plain[0]["session_id"][0].as_py()
        more = events(session(of_day_one, [7, 8], "2026-01-06 09:00", user_id="u1"))
        with pytest.raises(DataError, match=r"2026-01-01 \(2 events\)"):
            run([*plain, more], dataset, **rules)

    def test_rows_for_an_open_window_are_in_time(self, run, plain, dataset):
        run(plain, dataset, store="kept", log_end="2026-01-05 12:00")
        more = events(session("more", [7, 8], "2026-01-05 09:00", user_id="u1"))
        files = [plain[0], more, *plain[1:]]
        grown = run(files, dataset, store="kept", log_end=midnight(5))
        assert bytes_in(grown.folder) == bytes_in(run(files, dataset, log_end=midnight(5)).folder)


class TestDamage:
    @pytest.mark.parametrize("what", ["session_start_date=2026-01-02-train.parquet", "carried"])
    def test_what_is_damaged_is_named_set_aside_and_done_again(
        self, run, log, tmp_path, caplog, what
    ):
        dataset = dataset_config(**MESSY)
        run(log[:3], dataset, store="kept", log_end="2026-01-03 12:00")
        root = tmp_path / "kept" / ".dayahead" / "windows"
        (note,) = root.glob("*/*.json")
        state = json.loads(note.read_text())
        sha256 = state["files"].get(what) or state["carried"][0]
        blob = root / "blobs" / sha256[:2] / sha256
        shutil.copy(blob, copy := blob.with_suffix(".copy"))
        copy.replace(blob)  # the window file that is linked to it stays whole
        with blob.open("r+b") as file:
            file.seek(20)
            file.write(b"damage")
        grown = run(log, dataset, store="kept", log_end=midnight(5))
        assert bytes_in(grown.folder) == bytes_in(run(log, dataset, log_end=midnight(5)).folder)
        assert f"{sha256}: its bytes have changed; set aside" in told(caplog)

    @pytest.mark.parametrize("seed", range(5))
    def test_a_note_that_is_damaged_is_set_aside(self, run, log, tmp_path, caplog, seed):
        dataset = dataset_config(**MESSY)
        run(log[:3], dataset, store="kept", log_end="2026-01-03 12:00")
        (note,) = (tmp_path / "kept" / ".dayahead" / "windows").glob("*/*.json")
        held = bytearray(note.read_bytes())
        dice = random.Random(seed)
        held[dice.randrange(len(held))] ^= 1 << dice.randrange(7)
        note.write_bytes(held if seed else held[:-9])
        grown = run(log, dataset, store="kept", log_end=midnight(5))
        assert bytes_in(grown.folder) == bytes_in(run(log, dataset, log_end=midnight(5)).folder)
        assert note.exists() != (f"{note.name}: damaged, set aside" in told(caplog))

    def test_a_clock_that_was_set_back_does_not_clear_away_the_newest(self, run, log, tmp_path):
        dataset = dataset_config(**MESSY)
        tomorrow = time.time() + 86_400
        for n_days in (1, 2, 3):
            run(log[:n_days], dataset, store="kept", log_end=midnight(n_days))
            notes = list((tmp_path / "kept" / ".dayahead" / "windows").glob("*/*.json"))
            assert max(len(read_json(path)["parts"]) for path in notes) == n_days
            for path in notes:
                os.utime(path, (tomorrow + n_days, tomorrow + n_days))
        assert len(notes) == 2

    def test_old_states_and_what_only_they_held_are_cleared_away(self, run, log, tmp_path):
        dataset = dataset_config(**MESSY)
        for n_days in (1, 2, 3, 4, 5):
            run(log[:n_days], dataset, store="kept", log_end=midnight(n_days))
        root = tmp_path / "kept" / ".dayahead" / "windows"
        notes = [json.loads(path.read_text()) for path in root.glob("*/*.json")]
        assert sorted(len(note["parts"]) for note in notes) == [4, 5]
        named = set()
        for note in notes:
            named |= {*note["files"].values(), *note["census"].values(), *note["carried"]}
            named |= set(chain.from_iterable(note["memory"].values()))
        assert {path.name for path in root.glob("blobs/??/*")} == named
