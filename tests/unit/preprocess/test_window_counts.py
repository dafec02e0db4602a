import pytest

from dayahead.core.errors import ConfigError, DataError
from dayahead.preprocess.stage import preprocess
from dayahead.windows.folder import WindowFolder
from support.builders import (
    TWO_DAYS,
    dataset_config,
    events,
    machine_config,
    preprocess_config,
    session,
    window_config,
    write_log,
)

USER = {"user_id": "user_id"}


def test_thin_windows_are_dropped_and_the_last_part_stays_open(run):
    table = events(
        [row for n in range(3) for row in session(f"a{n}", [1, 2], f"2026-01-01 0{n}:00")]
        + session("b0", [7, 8], "2026-01-02 01:00")
        + [row for n in range(3) for row in session(f"c{n}", [3, 1], f"2026-01-04 0{n}:00")]
        + [row for n in range(3) for row in session(f"d{n}", [9, 1], f"2026-01-05 0{n}:00")]
    )
    store = run(table, dataset_config(), min_sessions=3, log_end="2026-01-05 12:00")
    entries = store.manifest.windows
    assert [(entry.window, entry.state, entry.sessions) for entry in entries] == [
        ("2026-01-01", "kept", 3),
        ("2026-01-02", "dropped", 1),
        ("2026-01-03", "dropped", 0),
        ("2026-01-04", "kept", 3),
        ("2026-01-05", "open", 3),
    ]
    assert entries[1].why == "1 sessions, window.min_sessions asks for 3"
    assert "2026-01-05T12:00:00Z" in entries[4].why
    # Nothing of a dropped or open window is known.
    assert store.vocabulary("item_id")["value"].to_pylist() == [1, 2, 3]
    assert store.vocabulary("item_id")["events"].to_pylist() == [6, 3, 3]
    assert store.manifest.steps["dropped_windows"] == 8
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
            run(TWO_DAYS, dataset_config(split={"train": [0, 1e-9]}))

    def test_gap_sessions_of_no_user(self, run):
        table = events(session("a", [1, 2], "2026-01-01", user_id=None)).drop_columns(
            ["session_id"]
        )
        by_gap = dataset_config(columns={**USER, "session_id": None}, gap_minutes=30)
        with pytest.raises(DataError, match="no event names a user"):
            run(table, by_gap)

    def test_a_failure_leaves_the_old_folder_and_nothing_else(self, tmp_path, dask_address):
        write_log(tmp_path / "raw", TWO_DAYS, log_end="2026-02-01")
        machine = machine_config(scheduler=dask_address)
        for least in (1, 100):
            window = window_config(min_sessions=least)
            try:
                preprocess(
                    tmp_path / "raw",
                    tmp_path / "windows",
                    dataset_config(),
                    window,
                    preprocess_config(),
                    machine,
                )
            except DataError:
                assert least == 100
        assert len(WindowFolder(tmp_path / "windows").windows) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "windows"]


@pytest.mark.parametrize("name", ["train", "session_id", "bef_price"])
def test_a_feature_by_the_name_of_our_own_columns_is_refused(name):
    with pytest.raises(ConfigError, match=f"features: {name}: reserved column names"):
        dataset_config(features={name: {"kind": "hour"}})
