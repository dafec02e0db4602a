"""Raw tables of any kind, downloaded and preprocessed: one of our errors, or the right sessions."""

import csv
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dayahead.core.errors import DayaheadError
from dayahead.download.stage import download
from support.builders import CALENDAR_WINDOWS, preprocessed, window_config
from support.raw_oracle import NAMES, NULLS, START, expected
from support.raw_tables import ODD, ODD_TIMES, WORDS, seldom
from support.session_windows import closed_windows, written_windows
from support.sources import a_dataset

MIDNIGHT = START + timedelta(days=17_000)
NEAR = st.integers(-200, 200).map(lambda minutes: f"{MIDNIGHT + timedelta(minutes=minutes):%F %T}")
FAR = st.integers(0, 70_000).map(lambda days: f"{START + timedelta(days=days):%F %T}")
ROWS = st.tuples(
    seldom(st.sampled_from("abcd"), WORDS),
    seldom(st.integers(1, 4).map(str), st.sampled_from(ODD)),
    seldom(NEAR, st.one_of(FAR, st.sampled_from(ODD_TIMES))),
    seldom(st.sampled_from(["", "0", "1.5", "-2"]), st.sampled_from(ODD)),
)
SESSIONS = st.fixed_dictionaries(
    {
        "repeats": st.fixed_dictionaries(
            {
                "rule": st.sampled_from(["keep", "drop_consecutive", "drop_all"]),
                "scope": st.just("session"),
            }
        ),
        "max_length": st.integers(2, 4),
        "truncate": st.sampled_from(["first", "last"]),
    }
)
WINDOWS = st.builds(
    lambda window, **more: window_config(**window, **more),
    st.sampled_from(CALENDAR_WINDOWS),
    overrun=st.sampled_from(["cut", "keep"]),
    grace=st.sampled_from([0, 30]),
)


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("log")
    monkeypatch.setenv("DVC_ROOT", str(folder / "root"))
    return folder


any_tables = given(
    rows=st.lists(ROWS, min_size=1, max_size=25),
    sessions=SESSIONS,
    window=WINDOWS,
    unreadable=st.sampled_from([0.0, 1.0]),
)


def times(n):
    return settings(max_examples=n, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.long
@any_tables
@times(3)
def test_raw_tables_become_the_right_windows_or_an_error(folder, **drawn):
    check(folder, **drawn)


@pytest.mark.slow
@any_tables
@times(150)
def test_many_raw_tables_become_the_right_windows_or_an_error(folder, **drawn):
    check(folder, **drawn)


def check(folder, rows, sessions, window, unreadable):
    with (folder / "log.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([NAMES, *rows])
    dataset = a_dataset(
        source={"urls": [str(folder / "log.csv")], "nulls": list(NULLS)},
        sessions=sessions,
        features={"price": {"kind": "number", "column": "price"}},
        quality={
            "nulls": {"session_id": 1, "item_id": 1, "event_time": 1},
            "unreadable": unreadable,
        },
    )
    try:
        download(dataset, "mine", folder / "raw")
        store = preprocessed(folder, dataset, window)
    except DayaheadError as error:
        event(f"an error: {str(error)[:20]}")
        return
    event("windows")
    table = pa.Table.from_pylist(expected(_read(folder / "log.csv"), "text").events)
    assert written_windows(store) == closed_windows(table, dataset, window)


def _read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
