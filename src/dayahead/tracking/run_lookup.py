"""The results of a run, wherever they are: a folder, MLflow, a DVC experiment, a Git revision.

MLflow and DVC take seconds to import, so each lookup imports what it needs.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayahead.config.locked_settings import LOCK, locked, text_of
from dayahead.config.sections import Settings
from dayahead.core.errors import ComparisonError, first_line
from dayahead.core.project import project_root

RANKS = "ranks"
WINDOWS = "windows.csv"
LISTS = "lists.csv"
"""Missing in runs of earlier versions."""
RESULTS = "results"


@dataclass(frozen=True)
class FoundRun:
    """The results of a run, and what is known of its settings."""

    folder: Path
    """With ranks/*.parquet and windows.csv."""
    settings: Settings | None
    """Those of its stages, by name, as DVC or MLflow recorded them; None: nobody did."""


def run_of(run: str, into: Path) -> FoundRun:
    """Find the results of a run.

    `run` is a results folder, MLflow run id, DVC experiment or Git revision; what has to be fetched
    goes to the folder `into`.

    Raises:
        ComparisonError: none of these has such results; says what was tried.
    """
    lookups = {"folder": _from_folder, "mlflow": _from_mlflow, "dvc": _from_dvc}
    # Nothing else is an MLflow run id, so the server need not be asked.
    if not re.fullmatch("[0-9a-f]{32}", run):
        del lookups["mlflow"]
    tried = []
    for name, lookup in lookups.items():
        try:
            found = lookup(run, into)
            folder = found.folder
            if (folder / WINDOWS).is_file() and any((folder / RANKS).glob("*.parquet")):
                return found
            tried.append(f"{name}: {folder} has no {RANKS}/*.parquet and {WINDOWS}")
        except _errors() as error:
            tried.append(f"{name}: {first_line(error)}")
    raise ComparisonError(
        f"{run}: no results found; expected a results folder, an MLflow run id, a DVC experiment "
        f"or a Git revision (tried {'; '.join(tried)})"
    )


def _errors() -> tuple[type[Exception], ...]:
    """Return the errors that a lookup raises if it finds nothing."""
    from dvc.exceptions import DvcException
    from dvc.scm import SCMError
    from mlflow import MlflowException

    return DvcException, SCMError, MlflowException, OSError, ValueError


def _from_folder(run: str, _into: Path) -> FoundRun:
    """Return a results folder, or that of a project; dvc.lock beside it has its settings."""
    folder = Path(run)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {run}")
    results = folder if (folder / RANKS).is_dir() else folder / RESULTS
    return FoundRun(results, _locked_settings(results.resolve().parent / LOCK))


def _locked_settings(lock: Path) -> Settings | None:
    """Return the settings of all stages in a dvc.lock; None without one that has any."""
    return locked(text_of(lock)) or None


def _from_mlflow(run: str, into: Path) -> FoundRun:
    """Download artifacts of the run itself or of the train run that its tags link to."""
    from mlflow.artifacts import download_artifacts

    from dayahead.tracking.store import Store
    from dayahead.tracking.uploader import LINEAGE_TAG

    store = Store()
    data = store.client.get_run(run).data
    source = data.tags.get(f"{LINEAGE_TAG}train", run)
    into.mkdir(parents=True, exist_ok=True)
    there = {each.path for each in store.client.list_artifacts(source)}
    for name in (RANKS, WINDOWS, *({LISTS} & there)):
        download_artifacts(
            run_id=source, artifact_path=name, dst_path=str(into), tracking_uri=store.uri
        )
    parent = data.tags.get("mlflow.parentRunId")
    recorded = (store.client.get_run(parent).data if parent else data).params
    return FoundRun(into, {key: _value(text) for key, text in recorded.items()} or None)


def _value(text: str) -> Any:  # noqa: ANN401
    """Return what `setting_text` has written."""
    with suppress(ValueError):
        return json.loads(text)
    return text


def _from_dvc(run: str, into: Path) -> FoundRun:
    """Read files of a revision: from Git where it has them, else from DVC's cache or remote."""
    from dvc.api import DVCFileSystem
    from dvc_data.index import DataIndexDirError

    files = DVCFileSystem(str(project_root()), rev=run)
    into.mkdir(parents=True, exist_ok=True)
    try:
        files.get(f"{RESULTS}/{RANKS}", str(into / RANKS), recursive=True)
        files.get_file(f"{RESULTS}/{WINDOWS}", str(into / WINDOWS))
        if files.exists(f"{RESULTS}/{LISTS}"):
            files.get_file(f"{RESULTS}/{LISTS}", str(into / LISTS))
    except FileNotFoundError:
        if files.exists(LOCK):
            raise
        raise FileNotFoundError(
            f"{run} has no {LOCK}, which names its results: commit it after `dvc repro`"
        ) from None
    except AttributeError:  # pygit2 raises it for a tree or a file
        raise ValueError(f"{run} is no commit") from None
    except DataIndexDirError:
        raise FileNotFoundError(
            f"{run} is known, but its results are neither in DVC's cache nor on its remote; where "
            f"it ran: `dvc push`, or `dvc exp push` for an experiment"
        ) from None
    with suppress(OSError):  # a commit made without `dvc repro`
        files.get_file(LOCK, str(into / LOCK))
    return FoundRun(into, _locked_settings(into / LOCK))
