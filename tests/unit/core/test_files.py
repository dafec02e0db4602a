"""Files are written whole, and errors of the file system name the file."""

import errno
import os

import pytest

from dayahead.core.files import partial_files, read_json, write_json, written_whole

NOT_UTF8 = os.fsdecode(b"caf\xe9")


def test_an_error_without_a_path_gets_that_of_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(OSError, match="No space left on device") as found, written_whole(path):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")
    assert found.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_json_can_be_read_whatever_its_text(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {NOT_UTF8: [NOT_UTF8, ("\ud800", 1, None)], "b": {"c": "\u4e2d\U0001f600"}})
    expected = {"caf\\xe9": ["caf\\xe9", ["\\ud800", 1, None]], "b": {"c": "\u4e2d\U0001f600"}}
    assert read_json(path) == expected


def test_files_of_a_killed_process_are_known_from_those_of_others(tmp_path):
    path = tmp_path / "a[b].json"
    for name in (".a[b].json.swp", ".a[b].jsonl.x.partial", "a[b].json.x.partial", ".gitkeep"):
        (tmp_path / name).touch()
    with written_whole(path) as left:
        assert partial_files(path) == [left]
    assert partial_files(path) == []
