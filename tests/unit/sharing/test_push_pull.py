"""Entries reach another cache whole and verified, or not at all."""

import errno
from collections import Counter
from pathlib import Path

import pytest

from dayahead.core.cache import Cache
from dayahead.core.errors import DataError
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.sharing.pull import pull
from dayahead.sharing.push import push
from dayahead.sharing.remote import PREFIX, Remote, RemoteError
from support.dvc_remotes import EVALUATIONS, FITS, change_manifest, content, folder_remote, put

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there"


@pytest.fixture
def store(tmp_path):
    return tmp_path.joinpath("store", *PREFIX)


@pytest.fixture
def remote(tmp_path):
    """Opens the remote, as each command does."""
    return lambda: folder_remote(tmp_path)


@pytest.fixture
def pushed(here, remote):
    """An entry of one file, which is on the remote."""
    entry = put(here, FITS, "a", x="1")
    push(here, remote(), [entry])
    return entry


def test_what_one_pushes_another_pulls(here, there, remote):
    entries = [put(here, FITS, "a", x="1", y="2"), put(here, EVALUATIONS, "b", x="3")]
    report = push(here, remote(), entries)
    assert (report.moved, report.present) == ({FITS: 1, EVALUATIONS: 1}, {})
    assert (report.n_files, report.n_bytes) == (
        {FITS: 2, EVALUATIONS: 1},
        {FITS: 2, EVALUATIONS: 1},
    )
    report = pull(there, remote(), entries, [])
    assert (report.moved, report.n_bytes) == ({FITS: 1, EVALUATIONS: 1}, {FITS: 2, EVALUATIONS: 1})
    assert [content(there, entry) for entry in entries] == [{"x": "1", "y": "2"}, {"x": "3"}]


def test_a_second_push_and_a_second_pull_transfer_nothing(here, there, remote, store, pushed):
    pull(there, remote(), [pushed], [])
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    for report in (push(here, remote(), [pushed]), pull(there, remote(), [pushed], [])):
        assert (report.moved, report.n_files, report.present) == (Counter(), Counter(), {FITS: 1})
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_a_file_that_entries_share_is_sent_and_fetched_once(here, there, remote, store):
    old = put(here, "windows", "old", x="1", y="2")
    push(here, remote(), [old])
    pull(there, remote(), [old], [])
    new = put(here, "windows", "new", x="1", y="2", z="3")
    assert push(here, remote(), [new]).n_files == {"windows": 1}
    assert len(list(store.glob("files/*"))) == 3
    assert pull(there, remote(), [new], []).n_files == {"windows": 1}
    assert content(there, new) == {"x": "1", "y": "2", "z": "3"}


def test_files_of_the_workspace_are_not_fetched(here, there, remote, tmp_path):
    entry = put(here, FITS, "a", x="1", y="2")
    push(here, remote(), [entry])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "any.json").write_text("1")
    (tmp_path / "data" / "other.json").write_text("3")
    assert pull(there, remote(), [entry], [tmp_path / "data"]).n_files == {FITS: 1}
    assert content(there, entry) == {"x": "1", "y": "2"}


def test_a_damaged_local_copy_is_fetched_instead(here, there, remote):
    old, new = put(here, FITS, "old", x="1"), put(here, FITS, "new", x="1")
    push(here, remote(), [old, new])
    pull(there, remote(), [old], [])
    (there / FITS / "old" / "ranks" / "x.json").write_text("9")
    assert pull(there, remote(), [new], []).n_files == {FITS: 1}
    assert content(there, new) == {"x": "1"}


def test_a_damaged_file_is_refused_and_the_other_entries_come(here, there, remote, store):
    bad, good = put(here, FITS, "bad", x="1", y="2"), put(here, FITS, "good", x="3")
    push(here, remote(), [bad, good])
    (store / "files" / sha256_of(here / FITS / "bad" / "ranks" / "x.json")).write_text("!")
    report = pull(there, remote(), [bad, good], [])
    assert list(report.refused) == [bad]
    assert report.refused[bad].startswith("ranks/x.json is damaged there: its sha256 is ")
    assert (content(there, bad), content(there, good)) == (None, {"x": "3"})
    assert list((there / FITS).glob(".*")) == []


def test_half_an_entry_is_refused_and_completed_by_the_next_push(here, there, remote, store):
    entry = put(here, FITS, "a", x="1", y="2")
    push(here, remote(), [entry])
    (store / "files" / sha256_of(here / FITS / "a" / "ranks" / "x.json")).unlink()
    report = pull(there, remote(), [entry], [])
    assert report.refused == {entry: "1 of its files are missing there, first ranks/x.json"}
    assert push(here, remote(), [entry]).n_files == {FITS: 1}
    assert pull(there, remote(), [entry], []).moved == {FITS: 1}


@pytest.mark.parametrize("text", ["", "{", '{"files": {}}', "[]"])
def test_a_damaged_manifest_is_refused_and_replaced_by_the_next_push(
    here, there, remote, store, text, pushed
):
    (store / FITS / "a.json").write_text(text)
    assert "its manifest is not valid" in pull(there, remote(), [pushed], []).refused[pushed]
    assert push(here, remote(), [pushed]).moved == {FITS: 1}
    assert pull(there, remote(), [pushed], []).moved == {FITS: 1}


def test_a_flipped_bit_in_a_name_is_noticed(there, remote, store, pushed):
    path = store / FITS / "a.json"
    path.write_text(path.read_text().replace("ranks/x", "ranks/y"))
    assert pull(there, remote(), [pushed], []).refused == {pushed: "its manifest is damaged"}


NO_NAMES = [
    *("../x.json", "/x.json", "ranks/../../x.json", "a\\..\\x.json", "./x.json", "x\0.json"),
    *("", "ranks", "model.pkl", "run.py"),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_lead_elsewhere_or_to_code_are_refused(there, remote, store, name, pushed):

    def rename(manifest):
        manifest["files"] = {name: manifest["files"]["ranks/x.json"]}
        manifest["fingerprint"] = fingerprint(manifest["files"])

    change_manifest(store / FITS / "a.json", rename)
    report = pull(there, remote(), [pushed], [])
    assert "is no name of a file of data" in report.refused[pushed]
    assert not [path for path in there.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_files_that_a_pull_leaves_out_are_not_sent(here, remote, store):
    Cache(here / FITS).put("a", lambda folder: (folder / "model.pkl").write_bytes(b""))
    [reason] = push(here, remote(), [(FITS, "a")]).refused.values()
    assert "'model.pkl' is no name of a file of data" in reason
    assert not store.exists()


def test_a_damaged_entry_is_not_sent(here, remote, store, caplog):
    entry = put(here, FITS, "a", x="1")
    (here / FITS / "a" / "ranks" / "x.json").write_text("2")
    assert push(here, remote(), [entry]).refused == {entry: "it is damaged in the cache"}
    assert "set aside as a.damaged" in caplog.text
    assert not store.exists()


def test_an_interrupted_push_leaves_no_entry_and_is_continued(
    here, there, remote, store, monkeypatch
):
    entry = put(here, FITS, "a", **{f"n{n}": str(n) for n in range(20)})
    send, sent = Remote.send_file, []

    def interrupted(self, source, sha256):
        if len(sent) == 5:
            raise RemoteError("the line is cut")
        sent.append(sha256)
        send(self, source, sha256)

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "send_file", interrupted)
        with pytest.raises(RemoteError, match="the line is cut"):
            push(here, remote(), [entry])
    n_stored = len(list(store.glob("files/*")))
    assert n_stored == 5
    assert pull(there, remote(), [entry], []).refused == {}
    assert content(there, entry) is None
    assert push(here, remote(), [entry]).n_files == {FITS: 20 - n_stored}
    assert pull(there, remote(), [entry], []).moved == {FITS: 1}


def test_a_file_that_is_cut_off_on_its_way_never_has_its_name(here, remote, store, monkeypatch):
    entry = put(here, FITS, "a", x="1")
    cut = remote()

    def put_half(source, path):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ECONNRESET, "connection reset")

    monkeypatch.setattr(cut.fs, "put_file", put_half)
    with pytest.raises(RemoteError, match=r"cannot be written: .*connection reset"):
        push(here, cut, [entry])
    assert list(store.glob("files/*")) + list(store.glob("files/.*")) == []


def test_an_interrupted_pull_leaves_no_entry(here, there, remote, monkeypatch):
    entry = put(here, FITS, "a", x="1", y="2")
    push(here, remote(), [entry])

    def fail(self, sha256, target, n_bytes):
        target.write_text("1")
        raise RemoteError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "fetch", fail)
        with pytest.raises(RemoteError, match="the line is cut"):
            pull(there, remote(), [entry], [])
    assert content(there, entry) is None
    assert pull(there, remote(), [entry], []).moved == {FITS: 1}


def test_a_disk_that_is_too_small_is_reported_before_anything_is_fetched(
    there, remote, monkeypatch, pushed
):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 0}))
    with pytest.raises(DataError, match="not enough space: pulling 1 entries from store needs"):
        pull(there, remote(), [pushed], [])
    assert not there.exists()


def test_a_disk_that_fills_up_is_the_disk_s_error(there, remote, monkeypatch, pushed):
    full = remote()

    def no_space(source, target, limit):
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr("dayahead.sharing.remote.copy_file", no_space)
    with pytest.raises(OSError, match="No space left") as caught:
        pull(there, full, [pushed], [])
    assert caught.value.errno == errno.ENOSPC
