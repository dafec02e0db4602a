"""Where the project and its cache are."""

import os
from pathlib import Path


def project_root() -> Path:
    """Return the main project's folder, from below it and from the copies that DVC makes too.

    DVC names it in `DVC_ROOT` to the stages of `--temp` and `--queue`.
    """
    if named := os.environ.get("DVC_ROOT"):
        return Path(named).absolute()
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), here)


def cache_root() -> Path:
    """Return the folder of the cache, which all experiments of a project share."""
    return project_root() / ".dayahead"
