"""Files written whole or not at all, and the space they need."""

import csv
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.errors import DataError
from dayahead.core.redaction import utf8

_PARTIAL = ".partial"
ROWS_PER_GROUP = 65_536
"""Rows of a parquet row group: the least that a streaming reader must hold in memory."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` only when the block succeeds.

    Raises:
        OSError: an error of the file system, with the path, which pyarrow leaves out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(_PARTIAL, f".{path.name}.", path.parent)
    os.close(handle)
    temporary = Path(name)
    temporary.chmod(0o644)  # mkstemp's 0600 would follow the file into every copy
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, if it exists; a link is removed, but not its target."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def partial_files(path: Path) -> list[Path]:
    """Return the temporary files of `written_whole` for a path that killed processes have left."""
    return [*path.parent.glob(f".{glob.escape(path.name)}.*{_PARTIAL}")]


@contextmanager
def folder_written_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder next to `folder`; it replaces `folder` only when the block succeeds."""
    aside = folder.with_name(f".{folder.name}.partial")
    remove_tree(aside)  # left by a killed run
    aside.mkdir(parents=True)
    try:
        yield aside
        shutil.rmtree(folder, ignore_errors=True)
        aside.replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, indented, keys in the order given; NaN and infinity are refused."""
    text = json.dumps(encodable(value), indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, f"{text}\n")


def encodable(value: Any) -> Any:  # noqa: ANN401
    """Return a value for JSON in which all text is valid UTF-8 (see `utf8`).

    Python writes lone surrogates, which represent invalid bytes, but few readers accept them.
    """
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, Mapping):
        return {encodable(key): encodable(each) for key, each in value.items()}
    return [encodable(each) for each in value] if isinstance(value, list | tuple) else value


def read_json(path: Path) -> Any:  # noqa: ANN401
    """Read one JSON document."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_csv(path: Path, rows: Iterable[Sequence[object]], *, is_longer: bool = False) -> None:
    """Write a table whole, or add rows to the one that is there (`is_longer`)."""
    with ExitStack() as stack:
        target = path if is_longer else stack.enter_context(written_whole(path))
        file = stack.enter_context(target.open("a" if is_longer else "w", newline=""))
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table atomically, zstd compressed; the same table always gives the same bytes."""
    with written_whole(path) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            row_group_size=ROWS_PER_GROUP,
            use_dictionary=_repeating(table.schema),
        )


def require_space(folder: Path, needed: int, what: str) -> None:
    """Check the free disk space before something large is written.

    Args:
        folder: where it will be written; it need not exist yet.
        needed: bytes.
        what: what needs them, for the message.

    Raises:
        DataError: the file system of `folder` has less than `needed` bytes free.
    """
    existing = (each for each in (folder, *folder.absolute().parents) if each.exists())
    free = shutil.disk_usage(next(existing)).free
    if free < needed:
        raise DataError(
            f"{folder}: not enough space: {what} needs {needed / 1e6:,.1f} MB, but only "
            f"{free / 1e6:,.1f} MB are free. Free more, or move the folder to a larger disk and "
            f"leave a link in its place"
        )


def _repeating(schema: pa.Schema) -> list[str]:
    """Columns to dictionary-encode; for floats parquet builds a dictionary, then drops it."""
    names = []
    for field in schema:
        is_list = pa.types.is_list(field.type)
        if not pa.types.is_floating(field.type.value_type if is_list else field.type):
            names.append(f"{field.name}.list.element" if is_list else field.name)
    return names
