"""Archives of every kind that is read, as bytes."""

import io
import tarfile
import zipfile
from collections.abc import Iterable

import py7zr

Files = Iterable[tuple[str, bytes]]
"""Names and contents, in the archive's order."""


def zip_of(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return out.getvalue()


def seven_zip_of(files: Files) -> bytes:
    out = io.BytesIO()
    with py7zr.SevenZipFile(out, "w") as archive:
        for name, content in files:
            archive.writestr(content, name)
    return out.getvalue()


def tar_of(files: Files, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
