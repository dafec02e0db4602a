"""The store of finished things, shared by every experiment of a project.

DVC empties a stage's outputs before it runs; what is finished is kept here and linked out again.
"""

import os
import shutil
from pathlib import Path


def store_root() -> Path:
    """Folder of the store, in the main project even from inside DVC's copies of it."""
    return Path(os.environ.get("DVC_ROOT", ".")).absolute() / ".dayahead"


def linked(source: Path, target: Path) -> None:
    """Give a stored file a second name, or copy it where the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)
