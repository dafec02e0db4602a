"""nights/ and published/ with what others left there: a night goes on, or ends with one message."""

import json
import os
import shutil

import pytest

from dayahead.core.errors import ConfigError, DataError, exit_with_message
from dayahead.nightly.pipeline import RefusedDataError
from dayahead.nightly.served import Served
from support.pretended_nights import (
    after_nights,
    linked,
    pretended_night,
    published_tree,
    run_nights,
    write_params,
)
from support.window_folders import day

NOT_UTF8 = b"clicks \xe9 fell".decode("utf-8", "surrogateescape")


def next_night(root, n_days=5):
    night = pretended_night(root)
    night.pipeline.deliver_days(n_days)
    return night.run()


def test_a_reason_that_is_not_utf8_is_written_out(root, night):
    outcome = night.rollback(NOT_UTF8)
    assert r"clicks \xe9 fell" in outcome.why
    [reason] = night.history.read().withdrawn.values()
    assert reason == r"clicks \xe9 fell"
    assert next_night(root).outcome == "published"


def test_a_reason_holds_no_secret(root, night):
    night.rollback("see https://me:HUSH@host/x?token=HUSH")
    assert "HUSH" not in night.history.path.read_text()


@pytest.mark.parametrize("reason", ["\u2028 \x85 \x0b \x1c \x00", '"\\\r\n{}<b>&', ""])
def test_any_reason_is_read_back(root, night, reason):
    night.rollback(reason)
    assert [*night.history.read().withdrawn.values()] == [reason]
    assert night.run().outcome == "nothing new"


def test_a_log_refused_for_a_file_whose_name_is_not_utf8_is_recorded(root, night, monkeypatch):

    def refuse(self):
        raise RefusedDataError(f"logs/{NOT_UTF8}.csv: too many defects")

    monkeypatch.setattr(type(night.pipeline), "update_data", refuse)
    assert night.run().status == 4
    assert r"clicks \xe9 fell.csv" in night.history.read().decisions[-1].why
    assert night.run().status == 4


@pytest.mark.slow
def test_hidden_files_and_folders_of_others_stay(root):
    after_nights(root, 4)
    others = [
        *("nights/.ipynb_checkpoints/nightly-checkpoint.html", "nights/.gitkeep"),
        *("nights/.history.jsonl.swp", "published/.ipynb_checkpoints/x", "nights/notes/mine.txt"),
    ]
    for name in others:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mine")
    (root / os.fsdecode(b"nights/.caf\xe9")).touch()
    assert next_night(root).outcome == "published"
    assert [(root / name).read_text() for name in others] == ["mine"] * len(others)


def test_what_a_killed_night_left_is_removed(root, night):
    left = root / "nights/.history.jsonl.a1b2c3d4.partial"
    left.touch()
    night.run()
    assert not left.exists()


@pytest.mark.slow
def test_without_the_previous_model_nights_go_on_and_say_so(root, caplog):
    after_nights(root, 4)
    shutil.rmtree((root / "published/previous").resolve())
    night = pretended_night(root)
    assert night.run().outcome == "nothing new"
    assert "no such folder, so there is no previous model" in caplog.text
    assert linked(root) == [day(3), None]
    with pytest.raises(ConfigError, match="the previous model is gone"):
        night.rollback("bad")
    assert night.run().outcome == "nothing new"
    assert next_night(root).outcome == "published"
    assert linked(root) == [day(4), day(3)]


def test_a_link_to_the_previous_model_that_is_gone_is_made_again(root):
    after_nights(root, 4)
    (root / "published/previous").unlink()
    assert pretended_night(root).run().outcome == "nothing new"
    assert linked(root) == [day(3), day(2)]


def test_without_the_current_model_a_night_is_refused_and_a_rollback_is_not(root):
    after_nights(root, 4)
    shutil.rmtree((root / "published/current").resolve())
    night = pretended_night(root)
    with pytest.raises(DataError, match=r"no such folder.*nightly --rollback"):
        night.run()
    assert night.rollback("gone").status == 0
    assert linked(root) == [day(2), None]
    assert next_night(root).outcome == "published"


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff\xfe"])
def test_a_damaged_mark_repeats_the_last_step(root, night, content):
    before = published_tree(root)
    (root / "nights/finished.json").write_bytes(content)
    assert night.run().outcome == "published"
    assert published_tree(root) == before


def test_a_history_that_is_not_utf8_is_named_with_the_line(root, night):
    night.history.path.write_bytes(night.history.path.read_bytes() + b'{"kind": "\xff"}\n')
    with pytest.raises(DataError, match=r"history\.jsonl: line 4 is not an entry"):
        night.run()


def test_a_history_on_a_disk_that_is_away_is_not_started_again(root, night):
    night.history.path.rename(root / "elsewhere.jsonl")
    night.history.path.symlink_to(root / "away.jsonl")
    with pytest.raises(DataError, match=r"links to .*away\.jsonl"):
        night.run()
    assert night.history.path.is_symlink()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nights", "file", "in the way"),
        ("published", "file", "no such folder"),
        ("nights/history.jsonl", "folder", "in the way"),
        ("published/current", "folder", "in the way"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("published", "loop", "no such folder"),
                ("nights/history.jsonl", "loop", "in the way"),
                ("nights/finished.json", "folder", "in the way"),
                ("published/.current.new", "folder", "in the way"),
            )
        ),
    ],
)
def test_something_else_in_the_place_of_a_file_ends_with_one_message(root, name, kind, message):
    after_nights(root, 4)
    path = root / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "folder":
        (path / "mine").mkdir(parents=True)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.write_text("mine")
    with pytest.raises(SystemExit) as ended, exit_with_message():
        next_night(root)
    assert path.name in ended.value.code
    assert message in ended.value.code


@pytest.mark.slow
def test_a_file_in_the_place_of_a_new_model_ends_before_it_is_recorded(root, night, monkeypatch):
    monkeypatch.setattr("dayahead.nightly.night.model_name", lambda *_: f"{day(4)}-taken")
    (root / f"published/{day(4)}-taken").write_text("mine")
    n_entries = len(night.history.read().entries)
    with pytest.raises(SystemExit, match="remove or rename"), exit_with_message():
        next_night(root)
    assert len(night.history.read().entries) == n_entries
    (root / f"published/{day(4)}-taken").unlink()
    assert next_night(root).outcome == "published"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("name", ["nights", "published", "nights/history.jsonl"])
def test_what_may_not_be_read_or_written_ends_with_one_message(root, name):
    after_nights(root, 4)
    (root / name).chmod(0)
    try:
        with pytest.raises(SystemExit, match="fix permissions"), exit_with_message():
            next_night(root)
    finally:
        (root / name).chmod(0o755)


@pytest.mark.slow
def test_folders_without_a_record_and_names_that_are_not_utf8_stay(root):
    after_nights(root, 3)
    for name in (b"2026-01-01-unknown", b"caf\xe9", b".hidden"):
        (root / "published" / os.fsdecode(name)).mkdir()
    run_nights(root, 8, first=4)
    kept = {os.fsencode(path.name) for path in (root / "published").iterdir()}
    assert {b"2026-01-01-unknown", b"caf\xe9", b".hidden"} <= kept


@pytest.mark.slow
def test_a_log_that_has_become_shorter_decides_nothing(root):
    """As after a clock that went back, or a backup that was restored."""
    night = after_nights(root, 6)
    before = linked(root)
    night.pipeline.deliver_days(4)
    assert night.run().outcome == "nothing new"
    assert linked(root) == before
    assert next_night(root, 7).outcome == "published"


def test_settings_that_changed_since_do_not_keep_a_rollback_from_working(root, night):
    write_params(root, training={"seed": 9})
    assert night.rollback("bad").status == 0


def test_what_is_served_is_known_without_a_pipeline(root):
    after_nights(root, 4)
    outcome = Served(root).rollback("bad")
    assert outcome.as_json()["outcome"] == "rolled back"
    assert linked(root) == [day(2), day(3)]
    entry = json.loads((root / "nights/history.jsonl").read_text().splitlines()[-1])
    assert entry["details"]["reason"] == "bad"
