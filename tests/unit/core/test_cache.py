"""Entries of the cache are whole and verified, or not there; they are listed and pruned."""

import os
import threading
import time
from pathlib import Path

import pytest

from dayahead.core.cache import (
    Cache,
    UnreadableEntryError,
    link_or_copy,
    link_tree,
    reading_entry,
    recorded_hashes,
)
from dayahead.core.fingerprints import sha256_of

DAY = 86_400


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "fits")


def writing(text):
    """A build that writes one file."""
    return lambda folder: (folder / "text").write_text(text)


def text_of(folder):
    return (folder / "text").read_text()


def refuse(folder):
    raise AssertionError(f"{folder}: built a second time")


def test_what_is_missing_is_built_once(cache):
    assert cache.get("a", text_of) is None
    assert cache.get_or_build("a", writing("first"), text_of) == "first"
    assert cache.get_or_build("a", refuse, text_of) == "first"
    cache.put("a", refuse)
    assert cache.get("a", text_of) == "first"


def test_an_entry_exists_once_it_is_whole(cache):
    def build(folder):
        assert folder == cache.partial("a")
        assert "a" not in cache
        (folder / "text").write_text("x")

    cache.put("a", build)
    assert "a" in cache
    assert "b" not in cache


def test_the_hashes_of_an_entry_are_recorded(cache):
    def build(folder):
        (folder / "inner").mkdir()
        (folder / "inner" / "text").write_text("x")

    cache.put("a", build)
    hashes = cache.get("a", recorded_hashes)
    assert hashes == {"inner/text": sha256_of(cache.folder / "a" / "inner" / "text")}


def test_a_failed_build_leaves_nothing(cache):
    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        cache.put("a", fail)
    assert cache.get("a", text_of) is None
    assert [path.name for path in cache.folder.iterdir()] == ["locks"]


def test_a_resumed_build_finds_what_an_interrupted_one_has_written(cache):
    def interrupted(folder):
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    def go_on(folder):
        (folder / "text").write_text((folder / "half").read_text() + "y")
        (folder / "half").unlink()

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_build("a", interrupted, text_of, is_resumed=True)
    assert cache.keys() == []
    assert cache.get_or_build("a", go_on, text_of, is_resumed=True) == "xy"


def test_a_full_disk_names_the_entry(cache):
    def fail(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*fits/a"):
        cache.put("a", fail)


def edit(entry):
    (entry / "text").write_text("other")


def shorten(entry):
    (entry / "text").write_text("")


def lose(entry):
    (entry / "text").unlink()


def add(entry):
    (entry / "more").write_text("x")


def lose_contents(entry):
    (entry / "contents.json").unlink()


def spoil_contents(entry):
    (entry / "contents.json").write_text("[1]")


@pytest.mark.parametrize("damage", [edit, shorten, lose, add, lose_contents, spoil_contents])
def test_a_damaged_entry_is_set_aside_and_built_again(cache, caplog, damage):
    cache.put("a", writing("first"))
    damage(cache.folder / "a")
    assert cache.get("a", text_of) is None
    assert "damaged" in caplog.text
    assert (cache.folder / "a.damaged").is_dir()
    assert cache.keys() == []
    assert cache.get_or_build("a", writing("second"), text_of) == "second"


def test_an_entry_that_its_reader_refuses_is_set_aside_and_built_again(cache, caplog):
    def read(folder):
        with reading_entry():
            return int(text_of(folder))

    cache.put("a", writing("no number"))
    assert cache.get("a", read) is None
    assert "damaged (ValueError: invalid literal for int()" in caplog.text
    assert cache.get_or_build("a", writing("7"), read) == 7
    with pytest.raises(UnreadableEntryError, match="no number"):
        cache.get_or_build("b", writing("no number"), read)


def test_a_full_disk_while_an_entry_is_read_is_no_fault_of_the_entry(cache):
    def read(folder):
        with reading_entry():
            raise OSError(28, "No space left on device")

    cache.put("a", writing("x"))
    with pytest.raises(OSError, match="No space left"):
        cache.get("a", read)
    assert cache.keys() == ["a"]


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("planted", [".a.partial", ".a.partial/inner", "a", "a.damaged"])
def test_nothing_is_written_through_a_link_in_the_cache(cache, tmp_path, planted, is_resumed):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (cache.folder / planted).parent.mkdir(parents=True)
    (cache.folder / planted).symlink_to(outside)

    def build(folder):
        (folder / "inner").mkdir(exist_ok=True)
        (folder / "inner" / "text").write_text("x")

    def read(folder):
        return (folder / "inner" / "text").read_text()

    assert cache.get_or_build("a", build, read, is_resumed=is_resumed) == "x"
    (cache.folder / "a" / "inner" / "text").write_text("damaged")
    assert cache.get_or_build("a", build, read, is_resumed=is_resumed) == "x"
    cache.prune(time.time() + DAY)
    assert [path.name for path in cache.folder.iterdir()] == ["locks"]
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"mine": "mine"}


def test_a_link_that_leads_nowhere_is_replaced(cache, tmp_path):
    cache.folder.mkdir()
    (cache.folder / "a").symlink_to(tmp_path / "nowhere")
    assert cache.get_or_build("a", writing("x"), text_of) == "x"
    assert not (cache.folder / "a").is_symlink()


def test_removing_takes_away_what_is_there(cache):
    for key in "abc":
        cache.put(key, writing(key))
    cache.remove(["a", "c", "never"])
    assert cache.keys() == ["b"]


@pytest.mark.parametrize(
    "remove",
    [
        lambda cache: cache.remove(["a"]),
        lambda cache: cache.prune(time.time() + DAY),
        lambda cache: cache.remove_superseded("a", None),
    ],
)
def test_a_removal_killed_midway_leaves_no_half_of_an_entry(cache, monkeypatch, remove):
    cache.put("a", writing("x"))

    def killed(folder):
        for path in folder.glob("*"):
            path.unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr("dayahead.core.cache.remove_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove(cache)
    assert "a" not in cache


def test_keys_come_by_their_last_use(cache):
    for days, key in enumerate(["a-1", "a-2", "b-1", "a-3"]):
        cache.put(key, writing(key))
        then = time.time() - (days + 1) * DAY
        os.utime(cache.folder / key, (then, then))
    assert cache.keys("a-") == ["a-1", "a-2", "a-3"]
    cache.get("a-3", text_of)
    assert cache.keys("a-") == ["a-3", "a-1", "a-2"]


def test_entries_are_listed_with_their_sizes_and_shared_files_count_once(cache):
    cache.put("a", lambda folder: (folder / "text").write_bytes(b"x" * 2**20))
    cache.put("b", lambda folder: link_or_copy(cache.folder / "a" / "text", folder / "text"))
    sizes = sorted(entry.n_bytes // 2**20 for entry in cache.entries())
    assert sizes == [0, 1]


def test_pruning_removes_what_was_not_used_lately(cache):
    for key, days in (("old", 40), ("new", 20), ("used", 40)):
        cache.put(key, writing(key))
        then = time.time() - days * DAY
        os.utime(cache.folder / key, (then, then))
    cache.get("used", text_of)
    for name in ("x.damaged", ".y.partial"):
        (cache.folder / name).mkdir()
        os.utime(cache.folder / name, (0, 0))
    assert cache.prune(time.time() - 30 * DAY) == 3
    assert sorted(path.name for path in cache.folder.iterdir()) == ["locks", "new", "used"]


def test_an_entry_that_another_process_removes_meanwhile_is_left_out(cache, monkeypatch):
    cache.put("a", writing("x"))
    folders = [cache.folder / "gone", cache.folder / "a"]
    monkeypatch.setattr(Cache, "keys", lambda _: [path.name for path in folders])
    assert [entry.path for entry in cache.entries()] == [cache.folder / "a"]
    monkeypatch.setattr(Cache, "_folders", lambda _: folders)
    assert cache.prune(time.time() + DAY) == 1
    assert "a" not in cache


def test_superseded_entries_are_removed(cache):
    for key in ("a-1", "a-2", "b-1"):
        cache.put(key, writing(key))
    for name in (".a-2.partial", ".a-3.partial", "a-3.damaged", ".b-2.partial"):
        (cache.folder / name).mkdir()

    def present():
        return sorted(path.name for path in cache.folder.iterdir() if path.name != "locks")

    cache.remove_superseded("a-", "a-2")
    assert present() == [".a-2.partial", ".b-2.partial", "a-2", "b-1"]
    cache.remove_superseded("a-", None)
    assert present() == [".b-2.partial", "b-1"]


def test_pruning_an_empty_cache_creates_nothing(cache):
    assert cache.prune(time.time()) == 0
    assert not cache.folder.exists()


def test_nobody_removes_what_another_reads(cache):
    cache.put("a", writing("first"))
    os.utime(cache.folder / "a", (0, 0))
    started, done = threading.Event(), threading.Event()

    def read(folder):
        started.set()
        assert done.wait(60)
        return text_of(folder)

    found = []
    reader = threading.Thread(target=lambda: found.append(cache.get("a", read)))
    reader.start()
    assert started.wait(60)
    os.utime(cache.folder / "a", (0, 0))
    assert cache.prune(time.time()) == 0
    cache.remove_superseded("a", None)
    # Another entry is not waited for.
    assert cache.get_or_build("b", writing("b"), text_of) == "b"
    done.set()
    reader.join()
    assert found == ["first"]


def test_two_that_build_one_entry_build_it_once(cache):
    built, start = [], threading.Barrier(2)

    def build(folder):
        built.append(folder)
        time.sleep(0.1)
        (folder / "text").write_text("x")

    def work():
        start.wait()
        cache.get_or_build("a", build, text_of)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_a_folder_is_linked_with_its_subfolders_and_an_entry_without_its_contents(cache, tmp_path):
    def build(folder):
        (folder / "far").mkdir()
        (folder / "far" / "text").write_text("x")

    cache.put("a", build)
    cache.get("a", lambda entry: link_tree(entry, tmp_path / "copy"))
    assert [path.name for path in (tmp_path / "copy").rglob("*")] == ["far", "text"]
    assert (tmp_path / "copy/far/text").samefile(cache.folder / "a/far/text")


def test_a_file_is_copied_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def fail_to_link(source, target):
        raise OSError(95, "Operation not supported")

    (tmp_path / "source").write_text("x")
    monkeypatch.setattr(os, "link", fail_to_link)
    link_or_copy(tmp_path / "source", tmp_path / "far" / "target")
    assert Path(tmp_path / "far" / "target").read_text() == "x"
