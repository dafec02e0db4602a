"""Room on a disk, looked for before something large is written."""

import shutil
from pathlib import Path

from dayahead.core.errors import DataError


def require_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin what would fill the disk.

    Args:
        folder: Where it will be written; it need not exist yet.
        needed: Bytes.
        what: What needs them, for the message.

    Raises:
        DataError: the file system of `folder` has less than `needed` bytes free.
    """
    here = folder.absolute()
    while not here.exists():
        here = here.parent
    free = shutil.disk_usage(here).free
    if free < needed:
        raise DataError(
            f"{folder}: not enough space: {what} needs {needed / 1e6:,.1f} MB, free are "
            f"{free / 1e6:,.1f} MB. Set that much free, or move the folder to a larger disk and "
            f"leave a link in its place"
        )
