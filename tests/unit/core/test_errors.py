"""Errors end a stage with one line, which holds no credentials."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dayahead.core.errors import DeadProcessError, exit_with_message, first_line

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("message", "expected"),
    [("\nhttps://me:secret@host is gone\nmore", "https://***@host is gone"), ("", "OSError")],
)
def test_first_line_of_an_error(message, expected):
    assert first_line(OSError(message)) == expected


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free space or fix permissions"),
        (errno.EROFS, "free space or fix permissions"),
        (errno.EPERM, "free space or fix permissions"),
        (errno.EFBIG, "allow larger files (ulimit -f)"),
        (errno.EMFILE, "allow more open files (ulimit -n)"),
        (errno.ENOTDIR, "remove or rename what is in the way"),
        (errno.EISDIR, "remove or rename what is in the way"),
        (errno.EEXIST, "remove or rename what is in the way"),
        (errno.ELOOP, "remove or rename what is in the way"),
    ],
)
def test_a_limit_of_the_file_system_ends_with_one_line(number, cure):
    with pytest.raises(SystemExit) as ended, exit_with_message():
        raise OSError(number, os.strerror(number), "windows.csv")
    found = f"[Errno {number}] {os.strerror(number)}: 'windows.csv'"
    assert ended.value.code == f"error: {found}; {cure}, and run again: finished work is kept"


def test_other_system_errors_keep_their_traceback():
    with pytest.raises(FileNotFoundError), exit_with_message():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "x")


def test_a_name_that_is_not_utf8_ends_with_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: 'caf.*' is not UTF-8; rename"), \
            exit_with_message():  # fmt: skip
        (tmp_path / "x").write_text(os.fsdecode(b"caf\xe9"), encoding="utf-8")


class SignalError(Exception):
    """Raised by torch's launcher."""

    sigval = signal.SIGTERM


def of_numba(error):
    """What becomes of an exception that a signal raises while Numba calls compiled code."""
    raised = SystemError("CPUDispatcher(<function>) returned a result with an exception set")
    raised.__cause__ = error
    return raised


@pytest.mark.parametrize(
    ("error", "name", "status"),
    [
        (KeyboardInterrupt(), "SIGINT", 130),
        (SystemExit(143), "SIGTERM", 143),
        (SignalError(), "SIGTERM", 143),
        (of_numba(KeyboardInterrupt()), "SIGINT", 130),
        (of_numba(of_numba(SystemExit(143))), "SIGTERM", 143),
    ],
)
def test_a_signal_to_stop_ends_with_one_line(error, name, status, capsys):
    with pytest.raises(SystemExit) as ended, exit_with_message():
        raise error
    assert ended.value.code == status
    assert capsys.readouterr().err == (
        f"error: stopped by {name}; run again: finished work is kept\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] can't allocate memory: 8 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("could not create a primitive"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        ImportError("x.so: cannot allocate memory in static TLS block"),
        RuntimeError("can't start new thread"),
        SystemError("error return without exception set"),
        DeadProcessError("process 1 of 2 failed and the others were stopped: exit code -9"),
    ],
)
def test_out_of_memory_ends_with_the_settings_to_lower(error):
    line = r"^error: .*memory.*training\.batch_size, .*finished work is kept$"
    with pytest.raises(SystemExit, match=line), exit_with_message():
        raise error


STAGES = [f"stages/{name}.py" for name in ("download", "preprocess", "train", "aggregate")]


@pytest.mark.parametrize("script", [*STAGES, "src/dayahead/__main__.py"])
def test_too_little_memory_to_import_ends_with_one_line(script):
    command = ["prlimit", "--as=100000000", sys.executable, str(ROOT / script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "allow more where it is limited (ulimit -v)" in line


def test_too_little_address_space_for_the_libraries_ends_at_once(monkeypatch):
    """OpenBLAS would try for ever to map its buffers."""
    has_started = False
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2_000_000_000, resource.RLIM_INFINITY))
    line = r"^error: MemoryError: 1\.86 GiB .* \(ulimit -v\)"
    with pytest.raises(SystemExit, match=line), exit_with_message():
        has_started = True
    assert not has_started
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3_000_000_000, resource.RLIM_INFINITY))
    with exit_with_message():
        has_started = True
    assert has_started


def test_out_of_memory_is_recognised_by_what_led_to_an_error():
    error = OSError("no libllvmlite.so")
    error.__context__ = ImportError("numpy:\nnumpy.so: failed to map segment from shared object\n")
    line = r"^error: ImportError: numpy\.so: failed to map .*; Probably .* \(ulimit -v\)"
    with pytest.raises(SystemExit, match=line), exit_with_message():
        raise error


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), SystemExit(3), SystemExit()])
def test_other_errors_pass_unchanged(error):
    with pytest.raises(type(error)) as ended, exit_with_message():
        raise error
    assert ended.value is error
