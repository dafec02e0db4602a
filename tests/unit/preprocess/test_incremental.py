"""A longer log continues from a cached run, and its output equals that of a run from scratch."""

import os
import shutil
import time
from dataclasses import fields
from functools import cache
from itertools import product

import pyarrow.parquet as pq
import pytest

from dayahead.config.windows import WindowConfig
from dayahead.core.cache import recorded_hashes
from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_json, write_parquet, write_text
from dayahead.core.fingerprints import sha256_of
from dayahead.preprocess import stage
from dayahead.preprocess.incremental import FinishedRuns
from dayahead.preprocess.stage import LateRowsError
from support.builders import (
    RANDOM_LOG_FEATURES,
    dataset_config,
    days_of,
    events,
    preprocessed,
    random_log,
    session,
    window_config,
    write_log,
)
from support.window_folders import bytes_in

USER = {"user_id": "user_id"}
FEATURES = {name: RANDOM_LOG_FEATURES[name] for name in ("colour", "shop", "price", "age")}
"""What a longer log may change; the hour and the weekday of an event cannot."""
MESSY = {"columns": USER, "features": FEATURES, "max_length": 5}
BY_GAP = {"columns": {**USER, "session_id": None}, "gap_minutes": 45.0}
RULES = {
    "by session": {},
    "drop_consecutive of a user": {"repeats": {"rule": "drop_consecutive", "scope": "user"}},
    "drop_all of a user": {"repeats": {"rule": "drop_all", "scope": "user"}},
    "gaps": BY_GAP,
    "gaps, drop_consecutive": BY_GAP | {"repeats": {"rule": "drop_consecutive", "scope": "user"}},
    "past": {"past_max_length": 3},
    "types, sent again": {"columns": {**USER, "event_type": "type"}, "retry_seconds": 3_000,
                          "past_max_length": 3,
                          "repeats": {"rule": "drop_consecutive", "scope": "user"}},
    "gaps, past, last": BY_GAP | {"past_max_length": 4, "truncate": "last",
                                  "repeats": {"rule": "drop_consecutive", "scope": "session"}},
}  # fmt: skip
WINDOWS = {
    "days": {},
    "grace": {"grace": 90},
    "hours": {"unit": "hour", "min_sessions": 2},
    "minutes": {"unit": "minute", "length": 15, "grace": 20},
    "five hours since": {"unit": "hour", "length": 5, "origin": "first_session"},
}
FAST = {
    ("by session", "grace"),
    ("gaps, past, last", "hours"),
    ("types, sent again", "minutes"),
}
"""The other pairs are slow."""


def pairs():
    for rules, window in product(RULES, WINDOWS):
        marks = () if (rules, window) in FAST else pytest.mark.slow
        yield pytest.param(RULES[rules], WINDOWS[window], id=f"{rules}-{window}", marks=marks)


def midnight(n_days):
    return f"2026-01-{1 + n_days:02d}"


@pytest.fixture(scope="module")
def log():
    return days_of(random_log(seed=11, days=5))


@pytest.fixture(scope="module")
def plain(log):
    return [
        table.select(["session_id", "user_id", "item_id", "event_time", "row"]) for table in log
    ]


@pytest.fixture
def entries(tmp_path):
    """Entries of the cache of the project `shared`, by the number of parts of their logs."""

    def entries():
        folders = (tmp_path / "shared/.dayahead/windows").glob("*/state.json")
        whole = [path for path in folders if path.parent.suffix != ".damaged"]
        return {len(read_json(path)["parts"]): path.parent for path in whole}

    return entries


PLAIN = dataset_config(columns=USER)


@pytest.fixture(scope="module")
def prepared(plain, tmp_path_factory):
    """Run the first parts of `plain` one after another, once; return project, last bytes."""

    @cache
    def prepared(*runs):
        folder = tmp_path_factory.mktemp("prepared")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DVC_ROOT", str(folder / "project"))
            for n_parts, log_end in runs:
                write_log(folder / "raw", plain[:n_parts], log_end=log_end)
                preprocessed(folder, PLAIN)
        return folder / "project", bytes_in(folder / "windows")

    return prepared


@pytest.fixture
def finished(prepared, tmp_path):
    """Bytes of the run over all of `plain`, which the cache of the project `shared` holds."""
    project, content = prepared((None, midnight(5)))
    shutil.copytree(project, tmp_path / "shared")
    return content


@pytest.fixture
def two_finished(prepared, tmp_path):
    """Have runs over two and three parts in the cache of `shared`; return bytes of one over all."""
    project, _ = prepared((2, "2026-01-02 12:00"), (3, "2026-01-03 12:00"))
    shutil.copytree(project, tmp_path / "shared")
    return prepared((None, midnight(5)))[1]


@pytest.mark.long
@pytest.mark.parametrize(("rules", "window"), [*pairs()])
def test_day_after_day_equals_one_run(run, log, rules, window, monkeypatch):
    """In any number of buckets, and without reading a row of an older part again."""
    dataset = dataset_config(**{**MESSY, **rules})
    if dataset.columns.event_type is not None:
        log = [table.append_column("event_type", table["colour"]) for table in log]
    if dataset.columns.session_id is None:
        log = [table.drop_columns(["session_id"]) for table in log]
    fresh = run(log[:4], dataset, log_end=midnight(4), **window)
    run(log[:2], dataset, project="shared", log_end=midnight(2), **window)
    read_event_log = stage.read_event_log
    monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 40)
    monkeypatch.setattr(stage, "MIN_EVENTS_PER_TASK", 10)
    for n_known, n_days in ((2, 3), (3, 4)):

        def without_older_rows(raw, config, n=n_known):
            found = read_event_log(raw, config)
            for part in found.parts[:n]:
                path = raw / part.file
                write_parquet(path, pq.read_table(path).slice(0, 0))
            return found

        monkeypatch.setattr(stage, "read_event_log", without_older_rows)
        end = midnight(n_days)
        grown = run(log[:n_days], dataset, project="shared", log_end=end, **window)
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)


@pytest.mark.parametrize("rule", ["drop_consecutive", "drop_all"])
def test_a_repeat_past_the_end_of_its_window_is_counted_alike_night_after_night(run, rule):
    dataset = dataset_config(repeats={"rule": rule, "scope": "session"})
    one = session("a", [1, 2], "2026-01-01 23:58") + session("b", [1, 1, 2], "2026-01-01 10:00")
    two = session("a", [2, 2], "2026-01-02 00:05") + session("c", [1, 2], "2026-01-02 10:00")
    log = [events(one), events(two)]
    for n_days in (1, 2):
        grown = run(log[:n_days], dataset, project="shared", log_end=midnight(n_days))
    assert bytes_in(grown.folder) == bytes_in(run(log, dataset, log_end=midnight(2)).folder)
    steps = grown.manifest.steps
    assert (steps["dropped_repeats"], steps["dropped_overrun"]) == (1, 2)


def test_an_event_before_the_start_of_its_session_is_past_once(run):
    """Session a starts on the second day, two of its events are of the day before."""
    dataset = dataset_config(columns={**USER, "session_start": "start"}, past_max_length=3)
    log = [
        events(
            session("b", [1, 2], "2026-01-01 10:00", session_start="2026-01-01 10:00")
            + session("a", [1, 2, 3], "2026-01-01 23:58", session_start=midnight(1), user_id="u")
        ),
        events(session("c", [4, 5], "2026-01-02 10:00", session_start=midnight(1), user_id="u")),
    ]
    for n_days, log_end in ((1, "2026-01-02 00:01"), (2, midnight(2))):
        grown = run(log[:n_days], dataset, project="shared", log_end=log_end)
    assert bytes_in(grown.folder) == bytes_in(run(log, dataset, log_end=midnight(2)).folder)


def test_defects_of_session_ids_are_counted_alike_day_after_day(run):
    """Ids 0 to 2 are used again by others on each day; on the first two users share each."""
    log = [
        events(
            [
                row
                for n in range(3)
                for user in (f"u{day}", f"u{day}-{n}" if day < 2 else None)
                for row in session(str(n), [1, 2], f"2026-01-0{day + 1} 1{n}:00", user_id=user)
            ]
        )
        for day in range(4)
    ]
    for n_days in (2, 3, 4):
        grown = run(log[:n_days], PLAIN, project="shared", log_end=midnight(n_days))
    assert bytes_in(grown.folder) == bytes_in(run(log, PLAIN, log_end=midnight(4)).folder)
    found = {name: (each.found, each.of) for name, each in grown.manifest.defects.items()}
    # Of the second day, only the later event of each is more than 24 hours after the start.
    assert found == {"session_users": (3, 3), "session_days": (30, 48)}


def test_the_same_log_again_needs_no_cluster(run, plain, finished, monkeypatch):
    monkeypatch.setattr(stage, "workers", None)
    again = run(plain, PLAIN, project="shared", log_end=midnight(5))
    assert bytes_in(again.folder) == finished


def test_runs_share_the_files_that_they_have_in_common(run, plain, entries):
    for n_days in (2, 3):
        grown = run(plain[:n_days], PLAIN, project="shared", log_end=midnight(n_days))
    for path in (*grown.folder.glob("*2026-01-01-*"), grown.folder / "statistics.json"):
        copies = [entry / "windows" / path.name for entry in entries().values()]
        assert len(copies) == 2
        assert path.name == "statistics.json" or all(path.samefile(copy) for copy in copies)
    lookups = [{path.name for path in entries()[n].glob("lookups/session_id/*")} for n in (2, 3)]
    assert lookups[0] < lookups[1]


@pytest.mark.usefixtures("finished")
def test_other_settings_use_runs_of_their_own(run, plain):
    other = dataset_config(columns=USER, max_length=3)
    again = run(plain, other, project="shared", log_end=midnight(5))
    assert bytes_in(again.folder) == bytes_in(run(plain, other, log_end=midnight(5)).folder)


@pytest.mark.parametrize("field", fields(WindowConfig), ids=lambda field: field.name)
def test_the_key_names_every_setting_of_a_window_but_which_are_trained_on(field):
    other = {
        **{"unit": "hour", "origin": "first_session", "timezone": "Europe/Oslo", "grace": 5},
        "length": 7,
        **{"min_sessions": 9, "overrun": "keep", "first": midnight(0), "last": midnight(1)},
    }
    configs = window_config(), window_config(**{field.name: other[field.name]})
    keys = {FinishedRuns(PLAIN, config, 1).settings for config in configs}
    assert len(keys) == (1 if field.name in ("first", "last") else 2)


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize(("first_part", "last_day"), [(1, 5), (0, 4)])
def test_a_run_of_more_parts_or_of_a_later_end_is_not_reused(run, plain, first_part, last_day):
    log, end = plain[first_part:], midnight(last_day)
    shorter = run(log, PLAIN, project="shared", log_end=end)
    assert bytes_in(shorter.folder) == bytes_in(run(log, PLAIN, log_end=end).folder)


def test_a_run_over_the_same_parts_in_another_order_is_not_reused(run):
    """Events of equal times are in the order of the source files."""
    a = events(session("s", [1, 2], "2026-01-01 09:00"))
    b = events(session("s", [3, 4], "2026-01-01 09:00"))
    found = [run(files, dataset_config(), project="shared") for files in ([a, b], [b, a])]
    values = [folder.vocabulary("item_id")["value"].to_pylist() for folder in found]
    assert values == [[1, 3, 2, 4], [3, 1, 4, 2]]


def test_parts_may_arrive_between_those_of_an_earlier_run(run, plain):
    ties = events(session("tie", [1, 2], "2026-01-05 09:00", user_id="u1"))
    more = events(session("tie", [3, 4], "2026-01-05 09:00", user_id="u1"))
    run([*plain[:4], ties], PLAIN, project="shared", log_end=midnight(4))
    files = [more, *plain[:2], more, *plain[2:4], ties, plain[4]]
    grown = run(files, PLAIN, project="shared", log_end=midnight(5))
    assert bytes_in(grown.folder) == bytes_in(run(files, PLAIN, log_end=midnight(5)).folder)


@pytest.mark.slow
def test_a_feature_that_looks_ahead_is_fitted_on_the_whole_log(run, log):
    ahead = {"price": {"kind": "number", "column": "price", "fit": "look_ahead"}}
    dataset = dataset_config(columns=USER, features=ahead)
    run(log[:3], dataset, project="shared", log_end=midnight(2))
    for log_end in (midnight(3), midnight(4)):
        grown = run(log[:3], dataset, project="shared", log_end=log_end)
        assert bytes_in(grown.folder) == bytes_in(run(log[:3], dataset, log_end=log_end).folder)


class TestLateRows:
    late = events(session("late", [1, 2, 3], "2026-01-02 09:00", user_id="u1"))

    def test_they_are_an_error_that_names_windows_and_counts(self, run, plain, finished):
        message = r"3 events came for 1 windows .* 2026-01-02 \(3 events\).*preprocess\.rebuild"
        for position in (0, 2, 5):
            files = [*plain[:position], self.late, *plain[position:]]
            with pytest.raises(LateRowsError, match=message):
                run(files, PLAIN, project="shared", log_end=midnight(5))
        again = run(plain, PLAIN, project="shared", log_end=midnight(5))
        assert bytes_in(again.folder) == finished

    def test_rebuild_writes_them_and_leaves_the_windows_before(self, run, plain, finished):
        before = finished
        files = [*plain, self.late]
        rebuilt = run(files, PLAIN, project="shared", log_end=midnight(5), rebuild=True)
        after = bytes_in(rebuilt.folder)
        assert after == bytes_in(run(files, PLAIN, log_end=midnight(5)).folder)
        first = "session_start_date=2026-01-01-train.parquet"
        second = "session_start_date=2026-01-02-train.parquet"
        assert after[first] == before[first]
        assert after[second] != before[second]
        # From here on they are no longer late.
        again = run(files, PLAIN, project="shared", log_end=midnight(5))
        assert bytes_in(again.folder) == after

    @pytest.mark.usefixtures("finished")
    def test_a_session_that_goes_on_past_its_window_is_cut_not_late(self, run, plain):
        of_day_one = plain[0]["session_id"][0].as_py()
        more = events(session(of_day_one, [7, 8], "2026-01-06 09:00", user_id="u1"))
        more_too = events(session("new", [7, 8], "2026-01-06 09:00", user_id="u1"))
        files = [*plain, more, more_too]
        grown = run(files, PLAIN, project="shared", log_end=midnight(6))
        assert bytes_in(grown.folder) == bytes_in(run(files, PLAIN, log_end=midnight(6)).folder)
        assert grown.manifest.windows[0].overrun_events >= 2

    def test_under_keep_it_is_late(self, run, plain):
        rules = {"log_end": midnight(5), "overrun": "keep", "project": "shared"}
        run(plain, PLAIN, **rules)
        of_day_one = plain[0]["session_id"][0].as_py()
        more = events(session(of_day_one, [7, 8], "2026-01-06 09:00", user_id="u1"))
        with pytest.raises(DataError, match=r"2026-01-01 \(2 events\)"):
            run([*plain, more], PLAIN, **rules)

    def test_rows_for_an_open_window_are_in_time(self, run, plain):
        run(plain, PLAIN, project="shared", log_end="2026-01-05 12:00")
        more = events(session("more", [7, 8], "2026-01-05 09:00", user_id="u1"))
        files = [plain[0], more, *plain[1:]]
        grown = run(files, PLAIN, project="shared", log_end=midnight(5))
        assert bytes_in(grown.folder) == bytes_in(run(files, PLAIN, log_end=midnight(5)).folder)


@pytest.mark.parametrize(
    "damage",
    [
        ("windows/session_start_date=2026-01-02-train.parquet", b"damage"),
        ("state.json", None),
    ],
)
def test_a_damaged_run_is_set_aside_and_an_earlier_one_continued(
    run, plain, two_finished, entries, caplog, damage
):
    name, content = damage
    path = entries()[3] / name
    text = path.read_bytes()
    path.unlink()  # files linked to it stay whole
    if content is not None:
        path.write_bytes(text[:20] + content + text[26:])
    grown = run(plain, PLAIN, project="shared", log_end=midnight(5))
    assert bytes_in(grown.folder) == two_finished
    assert f"damaged ({name}), set aside" in caplog.text
    assert 3 not in entries()


@pytest.mark.parametrize(
    "change",
    [
        ("state.json", '{"log_end": "2026-01-05", "parts": 7}'),
        ("state.json", '{"log_end": "soon"}'),
        ("windows/windows.json", "{}"),
        ("windows/statistics.json", "[]"),
    ],
)
def test_a_run_that_is_valid_by_its_hashes_but_unreadable_is_replaced(
    run, plain, two_finished, entries, caplog, change
):
    bad, (name, text) = entries()[3], change
    write_text(bad / name, text)
    hashes = recorded_hashes(bad) | {name: sha256_of(bad / name)}
    write_json(bad / "contents.json", hashes)
    grown = run(plain, PLAIN, project="shared", log_end=midnight(5))
    assert bytes_in(grown.folder) == two_finished
    assert caplog.text.count("damaged (") == 1


def test_the_newest_two_runs_stay_even_where_the_clock_was_set_back(run, plain, entries):
    for n_days in (1, 2, 3, 4):
        run(plain[:n_days], PLAIN, project="shared", log_end=midnight(n_days))
        found = entries()
        assert n_days in found
        for n, path in found.items():
            tomorrow = time.time() + 86_400 + n
            os.utime(path, (tomorrow, tomorrow))
    assert len(found) == 2
