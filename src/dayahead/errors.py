"""The errors Dayahead raises on purpose, as a tree.

DayaheadError
    ConfigError         params.yaml or a data set's file is wrong
    DataError           a file's content is not what it should be
        SourceError     a source cannot be fetched or read
        WindowError     a window file or windows.json is missing or damaged
        ModelFileError  models/ is missing or damaged
    BusyError           another process is at the same work
    TrainingError       a fit that cannot go on (a non-finite loss)
        DeadProcessError    a process ended for no reason of its own
    ScoreError          scores that cannot be ranked
    ComparisonError     two runs that cannot be compared
    TrackingError       a tracking store that cannot be used (never raised into training)

Every message says what, where, expected, found and the cure, in one sentence or two.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?]*\?)[^\s'\"]+")


class DayaheadError(Exception):
    """Root of all errors a user can cause; stages and commands print it without traceback."""


class ConfigError(DayaheadError):
    """A setting in params.yaml or datasets/<name>.yaml breaks a rule."""


class DataError(DayaheadError):
    """A file's content is not what it should be."""


class SourceError(DataError):
    """A source cannot be fetched, verified or read."""


class WindowError(DataError):
    """A window file, the vocabulary or windows.json is missing or damaged."""


class ModelFileError(DataError):
    """The folder of a saved model is missing, damaged or of another kind."""


class BusyError(DayaheadError):
    """Another process is at the same work."""


class TrainingError(DayaheadError):
    """A fit cannot go on."""


class DeadProcessError(TrainingError):
    """A process was killed, ran out of memory or lost the others."""


class ScoreError(DayaheadError):
    """Scores cannot be ranked."""


class ComparisonError(DayaheadError):
    """Two runs cannot be compared."""


class TrackingError(DayaheadError):
    """The tracking store cannot be used."""


def redacted(text: str) -> str:
    """Return text without the user, password and query of any URL in it: they may be secrets."""
    return _QUERY.sub(r"\1***", _USER.sub("***@", text))


@contextmanager
def told_plainly() -> Iterator[None]:
    """End the process with the message alone where a user's mistake, or full disk, shows."""
    try:
        yield
    except DayaheadError as error:
        raise SystemExit(f"error: {redacted(str(error))}") from None
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise SystemExit(
            f"error: {error}; free space, or set rights, and run again: what is finished is kept"
        ) from None
