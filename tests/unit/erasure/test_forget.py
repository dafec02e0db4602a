"""After `forget` no table of the project names the user, and a rerun does not bring them back."""

import csv
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from dayahead.core.cache import Cache
from dayahead.core.errors import BusyError, ConfigError
from dayahead.core.files import write_parquet
from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from dayahead.erasure.forget import forget
from dayahead.erasure.holdings import DVC_CACHE, find_holdings
from dayahead.erasure.tables import tables_in
from dayahead.preprocess.stage import preprocess
from dayahead.tracking.outbox import Outbox
from dayahead.windows.folder import WindowFolder
from support.builders import machine_config, preprocess_config, window_config
from support.user_datasets import dataset_of_users
from support.window_folders import bytes_in

USERS = ("4711", "\u00c5sa \u00dcnsal", "\u7528\u6237", "u1", "u10")
BY_GAP = {"past_max_length": 3, "gap_minutes": 30}
BY_COLUMN = {"past_max_length": 3}
both_kinds = pytest.mark.parametrize("kind", [BY_GAP, BY_COLUMN], ids=["gaps", "sessions"])


def rows_of_log():
    for day in range(1, 5):
        for number, user in enumerate(USERS):
            for event in range(3):
                time = f"2026-01-0{day} 1{number}:0{event}:00"
                yield {
                    **{"user": user, "item": 1 + (number + event + day) % 7, "time": time},
                    "session": f"s{day}-{number}",
                }


def write_source(without=()):
    for day in range(1, 5):
        with Path(f"day-{day}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.DictWriter(file, ["user", "item", "time", "session"])
            out.writeheader()
            rows = [row for row in rows_of_log() if f"-0{day} " in row["time"]]
            out.writerows(row for row in rows if row["user"] not in without)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A project that has run: its data, results, caches, records and DVC's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))

    def run():
        dataset = load_dataset("shop")
        download(dataset, "shop", Path("data/raw"))
        preprocess(Path("data/raw"), Path("data/windows"), dataset, window_config(),
                   preprocess_config(), machine_config())  # fmt: skip

    def build(kind):
        Path("datasets").mkdir()
        text = dataset_of_users([f"day-{day}.csv" for day in range(1, 5)], **kind)
        Path("datasets/shop.yaml").write_text(text)
        write_source()
        run()
        folder = WindowFolder(Path("data/windows"))
        for window in folder.windows:
            ranks = folder.read(window, "test", ["session_id"])
            write_parquet(Path(f"results/ranks/{window.name}.parquet"), ranks)
            write_parquet(Path(f"nights/n1/{window.name}.parquet"), ranks)
        Cache(tmp_path / ".dayahead/evaluations").put(
            "old", lambda folder: shutil.copytree("results/ranks", folder / "ranks")
        )
        Outbox(tmp_path / ".dayahead/outbox/run/train.jsonl").add_file(Path("results/ranks"))
        for number, path in enumerate(tables_in(tmp_path / "data")):
            target = tmp_path / f".dvc/cache/files/md5/ab/{number}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        return build

    build.run = run
    return build


def erase(root, users, *, dry_run=False):
    return forget(root, Path("datasets/shop.yaml"), users, root / ".dvc/cache", dry_run=dry_run)


def texts_of(root):
    """Every text in every table of the project, and of tables within lists."""
    found = set()
    for path in tables_in(root):
        if path.read_bytes()[:4] == b"PAR1":
            table = pq.ParquetFile(path).read()
        else:
            table = pa.ipc.open_file(path).read_all()
        for column in table.columns:
            if pa.types.is_string(column.type):
                found |= set(column.to_pylist())
    return found


@pytest.mark.long
@both_kinds
def test_nothing_that_names_the_users_is_left_and_a_rerun_brings_nothing_back(tmp_path, shop, kind):
    """The source still holds them: the windows are those of a log without their rows."""
    shop(kind)
    gone = ["4711", "\u00c5sa \u00dcnsal"]
    of_sessions = {f"s{day}-{number}" for day in range(1, 5) for number in (0, 1)}
    assert set(gone) <= texts_of(tmp_path)
    erasure = erase(tmp_path, gone)
    assert (erasure.missing, erasure.kept) == ([], [])
    listed = set(erasure.holdings.by_place())
    assert {
        *("data/raw", "data/windows", "results/ranks", "nights", "the cache of DVC"),
        *(f".dayahead/{kind}" for kind in ("events", "windows", "evaluations", "outbox")),
    } <= listed
    assert not texts_of(tmp_path) & {*gone, *of_sessions}
    shop.run()
    assert not texts_of(tmp_path) & {*gone, *of_sessions}
    found = bytes_in(Path("data/windows"))
    shutil.rmtree(".dayahead")
    write_source(without=gone)
    shop.run()
    assert bytes_in(Path("data/windows")) == found
    assert {"u1", "u10", "\u7528\u6237"} <= texts_of(tmp_path)


@pytest.mark.long
@both_kinds
def test_a_dry_run_lists_the_same_and_changes_nothing(tmp_path, shop, kind):
    shop(kind)
    before = bytes_in(tmp_path)
    listed = erase(tmp_path, ["u1"], dry_run=True).holdings
    after = {name: text for name, text in bytes_in(tmp_path).items() if not name.endswith(".lock")}
    assert after == {name: text for name, text in before.items() if not name.endswith(".lock")}
    done = erase(tmp_path, ["u1"]).holdings
    assert listed.found == done.found
    assert listed.rows["u1"] > 0


def test_a_session_that_began_before_sign_in_goes_from_windows_and_copies_of_them(tmp_path):
    """Windows name the user of a session's first event, here none."""
    ids = {"session_id": ["S", "S", "T"], "user_id": pa.array([None, "4711", None], pa.string())}
    write_parquet(tmp_path / "data/raw/events.parquet", pa.table(ids))
    window = {"session_id": ["S", "T"], "user_id": pa.array([None, None], pa.string())}
    for place in ("data/windows", ".dayahead/windows/key", ".dvc/cache"):
        write_parquet(tmp_path / place / "window.parquet", pa.table(window))
    write_parquet(tmp_path / "nights/other.parquet", pa.table(window).slice(1))
    found = find_holdings(tmp_path, ["4711"], tmp_path / ".dvc/cache", seed=1)
    assert {*found.by_place()} == {"data/raw", ".dayahead/windows", "data/windows", DVC_CACHE}
    assert found.rows == {"4711": 1}


@pytest.mark.long
def test_a_user_whose_id_begins_alike_stays_and_one_that_is_not_found_is_named(tmp_path, shop):
    shop(BY_COLUMN)
    erasure = erase(tmp_path, ["u1", "U10", "471"])
    assert erasure.missing == ["U10", "471"]
    shop.run()
    left = texts_of(tmp_path)
    assert "u10" in left
    assert "4711" in left
    assert "u1" not in left


def test_what_a_killed_stage_or_a_damaged_entry_has_left_goes(tmp_path, shop):
    shop(BY_GAP)
    shutil.copytree("data/windows", "data/.windows.building/run")
    [events, *_] = Path(".dayahead/events").glob("*/")
    for name in (f"{events.name}.damaged", ".half.partial"):
        left = events.with_name(name)
        left.mkdir()
        (left / "events-00000.parquet").write_bytes(b"PAR1 u1")
    (tmp_path / "data/mine.parquet").write_bytes(b"PAR1 u1")
    unfinished = Path("data/.windows.building/run/unfinished.parquet"), Path("nights/n1/.a.partial")
    for path in unfinished:
        path.write_bytes(b"PAR1 u1")
    erasure = erase(tmp_path, ["u1"])
    assert (erasure.unsearched, erasure.kept) == (4, [])
    assert not any(path.exists() for path in unfinished)
    assert "data/.windows.building" in erasure.holdings.by_place()
    left = [path for path in tmp_path.rglob("*") if path.suffix in {".damaged", ".partial"}]
    assert left == []
    assert (tmp_path / "data/mine.parquet").exists()
    assert "u1" not in texts_of(tmp_path / ".dayahead") | texts_of(
        tmp_path / "data/.windows.building"
    )


def test_a_table_of_sessions_that_cannot_be_read_goes(tmp_path, shop):
    shop(BY_GAP)
    path = tmp_path / "nights/sessions.parquet"
    pq.write_table(pa.table({"session_id": [f"s{n}" for n in range(500)]}), path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    assert erase(tmp_path, ["u1"]).unsearched == 1
    assert not path.exists()


@pytest.mark.long
def test_a_second_time_finds_nothing_more(tmp_path, shop):
    shop(BY_GAP)
    erase(tmp_path, ["u1"])
    shop.run()
    assert erase(tmp_path, ["u1"]).missing == ["u1"]
    assert len(load_dataset("shop").forgotten.users) == 1


def test_nothing_is_removed_while_a_stage_runs(tmp_path, shop):
    shop(BY_GAP)
    with (
        FileLock(tmp_path / ".dayahead/train.lock"),
        pytest.raises(BusyError, match="train is running here"),
    ):
        erase(tmp_path, ["u1"])
    assert load_dataset("shop").forgotten.users == ()


@pytest.mark.long
def test_a_folder_that_is_a_link_is_emptied_where_it_leads(tmp_path, shop):
    shop(BY_GAP)
    shutil.move("data/raw", tmp_path / "disk")
    Path("data/raw").symlink_to(tmp_path / "disk")
    erase(tmp_path, ["u1"])
    assert not (tmp_path / "disk").exists()
    shop.run()


def test_a_data_set_without_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("datasets").mkdir()
    Path("datasets/shop.yaml").write_text(dataset_of_users(user=None))
    with pytest.raises(ConfigError, match=r"columns.user_id names no column"):
        erase(tmp_path, ["u1"])
