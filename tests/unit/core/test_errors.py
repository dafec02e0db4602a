"""Errors: what they tell holds no credentials."""

import errno
import signal

import pytest

from dayahead.core.errors import DeadProcessError, exit_with_message, first_line, redacted


@pytest.mark.parametrize(
    ("message", "expected"),
    [("\nhttps://me:secret@host is gone\nmore", "https://***@host is gone"), ("", "OSError")],
)
def test_first_line_of_an_error(message, expected):
    assert first_line(OSError(message)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:secret@host/x", "https://***@host/x"),
        ("postgresql://me:p@ss@host/db", "postgresql://***@host/db"),
        ("s3://key@bucket/x and tcp://a:b@c:1", "s3://***@bucket/x and tcp://***@c:1"),
        ('["https://host/x?token=abc&y=1", "z"]', '["https://host/x?***", "z"]'),
        ("https://me:p?ss@host/a(1)?token=abc", "https://***@host/a(1)?***"),
        ("URL('https://host/x?token=abc')", "URL('https://host/x?***')"),
        (
            "exceeded with url: /a/b?token=abc/c (Caused by",
            "exceeded with url: /a/b?*** (Caused by",
        ),
        ("mail me@host, is it?", "mail me@host, is it?"),
    ],
)
def test_credentials_are_redacted(text, expected):
    assert redacted(text) == expected


def test_a_full_disk_is_told_in_one_line():
    told = r"No space left.*run again: what is finished is kept"
    with pytest.raises(SystemExit, match=told), exit_with_message():
        raise OSError(errno.ENOSPC, "No space left on device", "results/windows.csv")


def test_an_error_of_our_own_making_keeps_its_traceback():
    with pytest.raises(FileNotFoundError), exit_with_message():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "x")


class SignalError(Exception):
    """As torch's launcher raises it."""

    sigval = signal.SIGTERM


@pytest.mark.parametrize(
    ("error", "name", "status"),
    [
        (KeyboardInterrupt(), "SIGINT", 130),
        (SystemExit(143), "SIGTERM", 143),
        (SignalError(), "SIGTERM", 143),
    ],
)
def test_a_signal_to_stop_is_told_in_one_line(error, name, status, capsys):
    with pytest.raises(SystemExit) as ended, exit_with_message():
        raise error
    assert ended.value.code == status
    assert capsys.readouterr().err == (
        f"error: stopped by {name}; run again: what is finished is kept\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] can't allocate memory: 8 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("could not create a primitive"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        DeadProcessError("process 1 of 2 failed and the others were stopped: exit code -9"),
    ],
)
def test_where_memory_runs_out_it_is_said_what_to_lower(error):
    told = r"^error: .*memory ran out.*lower training\.batch_size, .*what is finished is kept$"
    with pytest.raises(SystemExit, match=told), exit_with_message():
        raise error


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), SystemExit(3), SystemExit()])
def test_what_is_nothing_of_that_passes_as_it_is(error):
    with pytest.raises(type(error)) as ended, exit_with_message():
        raise error
    assert ended.value is error
