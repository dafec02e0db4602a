"""Clock times beside the history, which decide nothing."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from dayahead.nightly.times import EntryTimes
from support.pretended_nights import run_nights


@pytest.fixture
def times(tmp_path):
    return EntryTimes(tmp_path / "times.json")


def test_each_entry_has_the_time_at_which_it_was_written(times):
    before = datetime.now(UTC)
    times.record(0, "a")
    times.record(1, "b")
    found = times.of(["a", "b"])
    assert [*found] == [0, 1]
    assert all(abs(at - before) < timedelta(minutes=1) for at in found.values())
    assert times.of(["a", "other"]).keys() == {0}


def test_a_history_that_was_started_again_has_no_times_of_the_other(times):
    for position, line in enumerate("abc"):
        times.record(position, line)
    times.record(1, "b2")
    assert times.of(["a", "b2", "c"]).keys() == {0, 1}


def test_entries_written_before_there_was_the_file_have_none(times):
    times.record(2, "c")
    assert times.of(["a", "b", "c"]).keys() == {2}


@pytest.mark.parametrize("content", [b"", b"{}", b"[[1]]", b"\xff", b'[["a", "today"]]'])
def test_a_damaged_file_is_one_without_times(times, content):
    times.path.write_bytes(content)
    assert times.of(["a"]) == {}
    times.record(0, "a")
    assert times.of(["a"]).keys() == {0}


def test_the_page_says_when_a_model_went_live_and_the_decisions_do_not(root):
    night, _ = run_nights(root, 3)
    page = night.history.page.read_text()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.search(rf"<small>since <time datetime=[^>]+>{stamp}</time></small>", page)
    assert len(re.findall(rf'class="at"><time [^>]+>{stamp}', page)) == 3  # champion, 2 nights
    assert not re.search(r"\d\d:\d\d", night.history.path.read_text())


def test_without_the_file_the_night_and_its_page_go_on(root, night):
    (root / "nights/times.json").unlink()
    night.pipeline.deliver_days(5)
    assert night.run().outcome == "published"
    assert night.history.page.read_text().count('class="at"') == 1
