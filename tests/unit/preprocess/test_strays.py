"""Events outside the span of a log wait, and shape no window, until a longer log holds them."""

import csv
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dayahead.core.columns import EVENT_TIME, ROW, SESSION_START
from dayahead.core.files import read_json
from dayahead.download.stage import download
from dayahead.preprocess.stage import LateRowsError
from support.builders import (
    dataset_config,
    days_of,
    events,
    preprocessed,
    random_log,
    session,
)
from support.sources import a_dataset
from support.window_folders import bytes_in

USER = {"user_id": "user_id"}
RULES = {
    "by session": {},
    "gaps": {"columns": {**USER, "session_id": None}, "gap_minutes": 45.0},
    "all of a user": {
        "columns": USER,
        "repeats": {"rule": "drop_all", "scope": "user"},
        "past_max_length": 3,
    },
}
FIRST, *OTHERS = RULES
VARIANTS = [FIRST, *(pytest.param(rules, marks=pytest.mark.slow) for rules in OTHERS)]
SPAN = ("2026-01-01", "2026-01-05")


def dated(rows, when):
    """Rows at another time, after a file's own rows."""
    times = pa.array([datetime.fromisoformat(when).replace(tzinfo=UTC)] * len(rows))
    rows = rows.set_column(
        rows.column_names.index(EVENT_TIME), EVENT_TIME, times.cast(rows[EVENT_TIME].type)
    )
    numbers = pa.array(range(10_000, 10_000 + len(rows)), pa.int64())
    return rows.set_column(rows.column_names.index(ROW), ROW, numbers)


@pytest.fixture(scope="module")
def plain():
    names = ["session_id", "user_id", "item_id", EVENT_TIME, ROW]
    return [table.select(names) for table in days_of(random_log(seed=3, days=8))]


@pytest.fixture(scope="module")
def strayed(plain):
    """The same with strays of its own sessions and users in the first file."""
    strays = [
        dated(plain[1].slice(0, 3), "2014-05-06 07:08:09"),
        dated(plain[0].slice(5, 2), "2026-01-06 12:00:00"),
        dated(plain[2].slice(9, 2), "2037-01-01 00:00:00"),
    ]
    return [pa.concat_tables([plain[0], *strays]), *plain[1:]]


def configured(rules, log):
    dataset = dataset_config(**RULES[rules])
    if dataset.columns.session_id is None:
        log = [table.drop_columns(["session_id"]) for table in log]
    return dataset, log


@pytest.mark.long
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "window", [{}, {"unit": "hour", "length": 5, "origin": "first_session", "min_sessions": 2}]
)
def test_windows_are_those_of_the_log_without_strays(run, plain, strayed, rules, window):
    dataset, log = configured(rules, plain)
    expected = run(log[:4], dataset, log_end="2026-01-04 12:00", **window)
    _, log = configured(rules, strayed)
    found = run(log[:4], dataset, log_end="2026-01-04 12:00", span=SPAN, **window)
    steps = [read_json(each.folder / "windows.json")["steps"] for each in (expected, found)]
    assert steps[1] == {**steps[0], "strays": 7, "events_read": steps[0]["events_read"] + 7}
    contents = [bytes_in(each.folder) for each in (expected, found)]
    assert contents[0].keys() == contents[1].keys()
    differing = [name for name in contents[0] if contents[0][name] != contents[1][name]]
    assert differing == ["windows.json"]


@pytest.mark.long
@pytest.mark.parametrize("rules", VARIANTS)
def test_strays_wait_until_the_log_has_reached_them(run, strayed, rules):
    """Night after night equals one run; the event of the 6th is set aside, then counts."""
    dataset, log = configured(rules, strayed)
    for n_days in range(2, 9):
        end = f"2026-01-{1 + n_days:02d}"
        shared = {"log_end": end, "span": (SPAN[0], max(end, SPAN[1]))}
        grown = run(log[:n_days], dataset, project="shared", **shared)
        fresh = run(log[:n_days], dataset, **shared)
        steps = read_json(grown.folder / "windows.json")["steps"]
        assert steps["strays"] == (7 if n_days < 6 else 5)
        assert bytes_in(grown.folder) == bytes_in(fresh.folder)


ONLY_LATE = ("2014-01-01", "2026-01-05")
CHANGES = {
    "found to be strays": (None, SPAN),
    "some found": (ONLY_LATE, SPAN),
    "early ones reached": (SPAN, ONLY_LATE),
    "none any more": (SPAN, None),
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rules", VARIANTS)
def test_another_night_may_find_other_strays(run, strayed, rules, change):
    """A first night of few events takes a wrong time for a day of the log, or the reverse."""
    before, after = CHANGES[change]
    dataset, log = configured(rules, strayed)
    run(log[:2], dataset, project="shared", log_end="2026-01-03", span=before)
    grown = run(log[:4], dataset, project="shared", log_end="2026-01-05", span=after)
    fresh = run(log[:4], dataset, log_end="2026-01-05", span=after)
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)


def test_the_same_files_are_read_again_where_others_of_their_events_are_strays(run, strayed):
    shared = {"project": "shared", "log_end": "2026-01-05"}
    found = [
        run(strayed[:4], dataset_config(), span=(SPAN[0], end), **shared).manifest.steps["strays"]
        for end in ("2026-01-07", SPAN[1])
    ]
    assert found == [5, 7]


def test_a_stray_start_of_a_session_is_one_too(run):
    rows = [
        {**row, SESSION_START: start}
        for row, start in zip(
            session("a", [1, 2], "2026-01-01 10:00") + session("b", [1, 2], "2026-01-01 11:00"),
            [datetime(2026, 1, 1, 10, tzinfo=UTC)] * 2 + [datetime(2037, 1, 1, tzinfo=UTC)] * 2,
            strict=True,
        )
    ]
    dataset = dataset_config(columns={"session_start": "start"})
    store = run(events(rows), dataset, log_end="2026-01-02", span=("2026-01-01", "2026-01-02"))
    content = read_json(store.folder / "windows.json")
    assert [each["window"] for each in content["windows"]] == ["2026-01-01"]
    assert content["steps"]["strays"] == 2


def test_late_rows_are_explained_by_how_far_the_log_reached(run, plain):
    ahead = pa.concat_tables([plain[0], dated(plain[0].slice(0, 1), "2026-01-03 08:00:00")])
    dataset = dataset_config()
    run([ahead], dataset, project="shared", log_end="2026-01-03 08:00:00")
    with pytest.raises(LateRowsError, match=r"reached to 2026-01-03T08.* by time\.between"):
        run([ahead, plain[1]], dataset, project="shared", log_end="2026-01-03 09:00:00")


def nights(folder, exports, monkeypatch):
    """Download and preprocess growing lists of files; yield the windows and states each time."""
    monkeypatch.setenv("DVC_ROOT", str(folder / "project"))
    monkeypatch.setattr("dayahead.download.stage.today", lambda: date(2029, 1, 1))
    paths = []
    for number, rows in enumerate(exports):
        paths.append(folder / f"{number}.csv")
        with paths[-1].open("w", newline="") as file:
            csv.writer(file).writerows([("session", "item", "time"), *rows])
        dataset = a_dataset(source={"urls": [str(path) for path in paths]})
        download(dataset, "mine", folder / "raw")
        preprocessed(folder, dataset)
        content = read_json(folder / "windows/windows.json")
        yield {each["window"]: (each["state"], each["sessions"]) for each in content["windows"]}


def visits(begin, end):
    """Sessions of four clicks, one every 25 minutes, that begin in [begin, end)."""
    moment, rows = begin, []
    while moment < end:
        rows += [(f"{moment:%d-%H%M}", n, moment + timedelta(minutes=n)) for n in range(4)]
        moment += timedelta(minutes=25)
    return rows


@pytest.mark.long
@pytest.mark.parametrize("when", [datetime(2028, 6, 1), datetime(2033, 1, 1), datetime(2017, 3, 1)])  # noqa: DTZ001
def test_a_wrong_clock_neither_closes_an_open_day_nor_blocks_later_nights(
    tmp_path, monkeypatch, when
):
    begin = datetime(2027, 3, 1)  # noqa: DTZ001
    ends = [begin + timedelta(days=2, hours=15), begin + timedelta(days=3, hours=15)]
    exports = [
        [*visits(begin, ends[0]), ("clock", 1, when), ("clock", 2, when + timedelta(minutes=1))],
        visits(ends[0], ends[1]),
        [*visits(ends[1], begin + timedelta(days=5)), ("phone", 7, when + timedelta(hours=2))],
    ]
    found = list(nights(tmp_path, exports, monkeypatch))
    assert [list(each) for each in found] == [
        [f"2027-03-0{day}" for day in range(1, n + 1)] for n in (3, 4, 5)
    ]
    states = [[state for state, _ in each.values()] for each in found]
    assert states == [["kept"] * n + ["open"] for n in (2, 3, 4)]
    assert found[2]["2027-03-03"] == ("kept", 58)


def test_a_span_that_holds_all_events_changes_nothing(run, strayed):
    dataset = dataset_config()
    log = [table.filter(pc.less(table[ROW], 10_000)) for table in strayed[:3]]
    with_span = run(log, dataset, log_end="2026-01-04", span=SPAN)
    assert bytes_in(with_span.folder) == bytes_in(run(log, dataset, log_end="2026-01-04").folder)
