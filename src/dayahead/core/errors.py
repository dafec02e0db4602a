"""The errors Dayahead raises on purpose, and how a process ends with one line.

Every message says what, where, expected, found and how to fix it, in one or two sentences.
"""

import errno
import re
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dayahead.core.collector import collect_rarely
from dayahead.core.redaction import redacted

LEAST_ADDRESS_SPACE = 5 * 2**29
"""Bytes that the libraries take when they are imported (2.36 GiB with a torch for CPUs)."""
TERMINATED = 128 + signal.SIGTERM
"""Exit status of a stage that SIGTERM stopped, as in a shell."""
_CURE = "free space or fix permissions"
_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM), _CURE),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP),
        "remove or rename what is in the way",
    ),
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
}
# The last five come from oneDNN, a killed process, the dynamic linker, threads and an import.
_OUT_OF_MEMORY = re.compile(
    r"allocate memory|out of memory|bad_alloc|could not create a primitive|exit code -9|"
    r"failed to map segment|can't start new thread|error return without exception set"
)
_SURROGATES = "surrogates not allowed"
"""Reason of the UnicodeEncodeError for an argument or file name with bytes that are not UTF-8."""
_SHOWN = 200
_RERUN = "run again: finished work is kept"
_LESS_MEMORY = (
    f"Probably out of memory: allow more where it is limited (ulimit -v), or reduce "
    f"training.batch_size, evaluation.batch_size or loss.logits_budget_mib (for preprocess: "
    f"machine.memory_limit), and {_RERUN}"
)
_MAY_LACK_MEMORY = (ImportError, RuntimeError, SystemError, OSError)


class DayaheadError(Exception):
    """Root of all errors a user can cause; stages and commands print them without traceback."""


class ConfigError(DayaheadError):
    """A setting in params.yaml or datasets/<name>.yaml breaks a rule."""


class DataError(DayaheadError):
    """A file's content is not what it should be."""


class SourceError(DataError):
    """A source cannot be fetched, verified or read."""


class UnreachableError(SourceError):
    """A source is missing or does not answer; it may later."""


class WindowError(DataError):
    """A window file, the vocabulary or windows.json is missing or damaged."""


class ModelFileError(DataError):
    """The folder of a saved model is missing, damaged or of another kind."""


class BusyError(DayaheadError):
    """Another process runs the same stage."""


class TrainingError(DayaheadError):
    """A fit cannot go on, such as with a loss that is not finite."""


class DeadProcessError(TrainingError):
    """A process was killed, ran out of memory or lost the others."""


class ScoreError(DayaheadError):
    """Scores cannot be ranked."""


class ComparisonError(DayaheadError):
    """Two runs cannot be compared."""


class TuneError(DayaheadError):
    """A search cannot start, or go on."""


class TrackingError(DayaheadError):
    """The tracking store cannot be used; never raised into training."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, redacted, or its type where it has none."""
    return redacted(str(error).strip().partition("\n")[0]) or type(error).__name__


def described(error: BaseException) -> str:
    """Return the type and the message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def cure_of(error: OSError) -> str:
    """Return what a user does about an error of the file system."""
    return _CURES.get(error.errno or 0, _CURE)


@contextmanager
def exit_with_message() -> Iterator[None]:
    """End the process with one line for a user's mistake, a limit of the machine or a signal.

    Stages and commands start in it, so it also tunes the garbage collector (`collect_rarely`).
    """
    collect_rarely()
    try:
        _check_address_space()
        yield
    except BaseException as error:
        if (number := signal_of(error)) is not None:
            sys.stderr.write(f"error: stopped by {signal.Signals(number).name}; {_RERUN}\n")
            raise SystemExit(128 + number) from None
        if (message := _message_of(error)) is None:
            raise
        raise SystemExit(f"error: {redacted(message)}") from None


def _check_address_space() -> None:
    """Raise MemoryError where a limit leaves the libraries too little.

    Where OpenBLAS cannot map its buffers, it tries for ever: an import would not end.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise MemoryError(
            f"{limit / 2**30:.2f} GiB of address space, expected {LEAST_ADDRESS_SPACE / 2**30} "
            f"or more"
        )


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack of the main thread, so that unfinished work is cleaned up."""
    # Python allows only the main thread to set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def signal_of(error: BaseException) -> int | None:
    """Return the signal that ended the process, if one did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit):
        return signal.SIGTERM if error.code == TERMINATED else None
    if isinstance(error, SystemError) and error.__cause__ is not None:
        return signal_of(error.__cause__)  # the signal came while Numba's compiled code ran
    return getattr(error, "sigval", None)  # set by the SignalException of torch's launcher


def _message_of(error: BaseException) -> str | None:
    """Return the message for an error that is not a bug; None for others."""
    if isinstance(error, Exception) and (lack := lack_of_memory(error)) is not None:
        return f"{lack}; {_LESS_MEMORY}"
    if isinstance(error, OSError) and error.errno in _CURES:
        return f"{error}; {cure_of(error)}, and {_RERUN}"
    if isinstance(error, UnicodeEncodeError) and error.reason == _SURROGATES:
        return f"{error.object[:_SHOWN]!r} is not UTF-8; rename what has this name"
    return str(error) if isinstance(error, DayaheadError) else None


def lack_of_memory(error: BaseException) -> str | None:
    """Return the line in which an error, or one that led to it, reports a lack of memory."""
    name = "" if isinstance(error, DayaheadError) else f"{type(error).__name__}: "
    if isinstance(error, MemoryError):
        return f"{name}{error}".removesuffix(": ")
    if isinstance(error, (*_MAY_LACK_MEMORY, DayaheadError)):
        for line in str(error).splitlines():
            if _OUT_OF_MEMORY.search(line):
                return f"{name}{line}"
    before = error.__cause__ or error.__context__
    return None if before is None else lack_of_memory(before)
