"""Errors: what they tell holds no credentials."""

import errno

import pytest

from dayahead.errors import redacted, told_plainly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:secret@host/x", "https://***@host/x"),
        ("postgresql://me:p@ss@host/db", "postgresql://***@host/db"),
        ("s3://key@bucket/x and tcp://a:b@c:1", "s3://***@bucket/x and tcp://***@c:1"),
        ('["https://host/x?token=abc&y=1", "z"]', '["https://host/x?***", "z"]'),
        ("https://me:p?ss@host/a(1)?token=abc", "https://***@host/a(1)?***"),
        ("URL('https://host/x?token=abc')", "URL('https://host/x?***')"),
        ("mail me@host, is it?", "mail me@host, is it?"),
    ],
)
def test_credentials_are_redacted(text, expected):
    assert redacted(text) == expected


def test_a_full_disk_is_told_in_one_line():
    told = r"No space left.*run again: what is finished is kept"
    with pytest.raises(SystemExit, match=told), told_plainly():
        raise OSError(errno.ENOSPC, "No space left on device", "results/windows.csv")


def test_an_error_of_our_own_making_keeps_its_traceback():
    with pytest.raises(FileNotFoundError), told_plainly():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "x")
