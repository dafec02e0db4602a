"""Which files of an archive or a folder are the log, and which are junk beside it."""

import logging
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from dayahead.core.errors import SourceError

EVERY = ("*",)
"""The default of source.members."""
_JUNK = re.compile(
    r"(.*/)?(__MACOSX|_temporary|\.[^/.][^/]*)/.*"
    r"|(.*/)?(\.[^/.][^/]*|Thumbs\.db|desktop\.ini|_SUCCESS|_metadata|_common_metadata"
    r"|_(committed|started)_[^/]*|[^/]+\.crc)",
    re.IGNORECASE,
)
_DOCUMENT = re.compile(
    r"(.*/)?((readme|licen[cs]e|copying|notice|changelog|changes|authors|citation|terms)[^/]*"
    r"|[^/]+\.(md|pdf|html?|rst|rtf|docx?|odt|png|jpe?g|sha\d+|md5|sig|asc))",
    re.IGNORECASE,
)
_DATA = (".csv", ".tsv", ".tab", ".psv", ".dat", ".json", ".jsonl", ".ndjson", ".parquet")
_PACKED = (".gz", ".gzip", ".zst", ".bz2", ".xz", ".lz4")
_log = logging.getLogger(__name__)


def is_junk(path: str) -> bool:
    """Return whether a file is one that systems leave beside data: .DS_Store, _SUCCESS."""
    return _JUNK.fullmatch(path.replace("\\", "/").removeprefix("./")) is not None


def is_match(member: str, globs: Sequence[str]) -> bool:
    """Return whether a glob matches; junk needs one that names it in full."""
    found = any(PurePosixPath(member).match(glob) for glob in globs)
    return found and (not is_junk(member) or PurePosixPath(member).name in globs)


def select(found: Iterable[str], members: Sequence[str], name: str) -> list[str]:
    """Return the members of an archive that match, in its order.

    Where every member is wanted, documents are left out; several kinds of data are ambiguous.

    Raises:
        SourceError: there is none, two have one name, one is outside the archive's folder, or it is
            ambiguous which are the log.
    """
    found = list(found)
    selected = [member for member in found if is_match(member, members)]
    if not selected:
        raise SourceError(
            f"{name}: no file in it matches source.members {', '.join(members)}; it holds "
            f"{', '.join(found[:10]) or 'nothing'}"
        )
    if tuple(members) == EVERY:
        selected = _without_documents(selected, name)
    paths = Counter(posixpath.normpath(member.replace("\\", "/")) for member in selected)
    if twice := [path for path, n in paths.items() if n > 1]:
        raise SourceError(
            f"{name}: holds two files called {twice[0]}: expected one. Unpack it by hand and list "
            f"the right one in source.urls, or leave them out by source.members"
        )
    for member in selected:
        check_inside(member, name)
    return selected


def check_inside(member: str, name: str) -> None:
    """Raise SourceError if a member would be written outside the archive's folder."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{name}: member {member!r} would be extracted outside the target folder")


def _without_documents(members: list[str], name: str) -> list[str]:
    rest = [member for member in members if not _DOCUMENT.fullmatch(member)] or members
    endings = {_ending(member) for member in rest}
    if len(endings) > 1 and len(data := endings.intersection(_DATA)) == 1:
        rest = [member for member in rest if _ending(member) in data]
    elif len(endings) > 1:
        raise SourceError(
            f"{name}: holds files of several kinds: {', '.join(rest[:10])}. Name those of the log "
            f"in source.members, for example '*{max(endings)}'"
        )
    if ignored := [member for member in members if member not in rest]:
        _log.info("%s: not read: %s", name, ", ".join(ignored[:10]))
    return rest


def _ending(member: str) -> str:
    """Return the lower-case ending of a name; numbers, as of rotated logs, are none."""
    suffixes = [each for each in PurePosixPath(member.lower()).suffixes if each not in _PACKED]
    last = suffixes[-1] if suffixes else ""
    return "" if re.fullmatch(r"\.[\d_-]+", last) else last
