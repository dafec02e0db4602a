"""Copies that a project cannot remove, each with instructions for its owner."""

from contextlib import suppress
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo

from dayahead.core.redaction import public_url
from dayahead.dataset.schema import DatasetConfig


def dvc_cache(root: Path) -> Path:
    """Return the folder in which DVC keeps outputs of this and of earlier runs."""
    with suppress(DvcException):
        return Path(Repo(str(root)).cache.local.path)
    return root / ".dvc" / "cache"


def out_of_reach(root: Path, dataset: DatasetConfig) -> list[str]:
    """Return a line for each kind of copy."""
    sources = ", ".join(map(public_url, dataset.source.urls)) or "the generator"
    return [
        f"source files ({sources}): delete the rows there; until then `download` leaves out the "
        f"rows of forgotten users, and .dayahead/downloads may hold a copy of what it fetched",
        "models (models/, published/, cached fits): they hold no id of a user or session, and what "
        "was learned of their clicks until they are trained again; `dvc repro` does that, then "
        "`dayahead cache --prune 0` removes the old fits",
        "running services (`dayahead serve --live`): their memory holds sessions, and counts of "
        "their clicks, until they take over the next model or are restarted: restart them. What "
        "clients go on reporting of a user is taken: stop them first",
        "events outside of live/*.sqlite: files of another --events-log (put them into live/ and "
        "run this again, or delete the rows), Redis streams (delete the entries), and backups",
        f"DVC remotes ({_remotes(root)}): push after the next run, then `dvc gc -w -c` removes "
        f"what no output refers to; delete the remote's folder dayahead/cache, which `dayahead "
        f"cache push` fills",
        "MLflow runs: delete those of earlier runs, then `mlflow gc`: their artifacts hold ids of "
        "sessions (results/ranks)",
        "Git history: holds no rows, unless you committed a source file; dvc.lock of old commits "
        "names outputs that can no longer be checked out",
        "copies elsewhere (other clones, exported models, reports sent): run this in each clone; "
        "replace exported models",
    ]


def _remotes(root: Path) -> str:
    with suppress(DvcException):
        return ", ".join(sorted(Repo(str(root)).config["remote"])) or "none"
    return "none"
