"""Content hash of a published model: the key in its folder's name, <window>-<key8>."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dayahead.core.errors import ModelFileError
from dayahead.core.fingerprints import fingerprint, sha256_of

LENGTH = 8
_PUBLISHED = re.compile(rf"\d{{4}}-\d\d-\d\d(?:T\d\d(?:\d\d)?)?-([0-9a-f]{{{LENGTH}}})")


def content_key(models: Path) -> str:
    """Return the key of the content of all files of a folder, hashed in threads.

    Files and folders with hidden names, such as a notebook's checkpoints, do not count.
    """
    found = ((path, path.relative_to(models)) for path in sorted(models.rglob("*")))
    files = [
        path
        for path, name in found
        if path.is_file() and not any(part.startswith(".") for part in name.parts)
    ]
    with ThreadPoolExecutor() as threads:
        hashes = list(threads.map(sha256_of, files))
    names = [path.relative_to(models).as_posix() for path in files]
    return fingerprint(dict(zip(names, hashes, strict=True)))[:LENGTH]


def is_published(folder: Path) -> bool:
    """Whether a folder, or that to which it links, has the name of a published model."""
    return _PUBLISHED.fullmatch(folder.resolve().name) is not None


def check_content(folder: Path) -> None:
    """Compare the files of a folder with its name, if it has that of a published model.

    Raises:
        ModelFileError: a file is not as it was published, is missing or was added.
    """
    name = folder.resolve().name
    wanted = _PUBLISHED.fullmatch(name)
    if wanted is not None and (found := content_key(folder)) != wanted[1]:
        raise ModelFileError(
            f"its files are not those that were published as {name}, their key is {found}; restore "
            f"the folder, or publish another model (`dayahead nightly --rollback`)"
        )
