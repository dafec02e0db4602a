"""The results of a run, wherever they are: a folder, MLflow, a DVC experiment, a Git revision.

MLflow and DVC take seconds to import, so each lookup imports what it needs.
"""

import re
from pathlib import Path

from dayahead.core.errors import ComparisonError, first_line
from dayahead.core.project import project_root

RANKS = "ranks"
WINDOWS = "windows.csv"
LISTS = "lists.csv"
"""Of a run of an earlier version there is none."""
RESULTS = "results"


def results_of(run: str, into: Path) -> Path:
    """Find the results of a run and return a folder with ranks/*.parquet and windows.csv.

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
            folder = lookup(run, into)
            if (folder / WINDOWS).is_file() and any((folder / RANKS).glob("*.parquet")):
                return folder
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


def _from_folder(run: str, _into: Path) -> Path:
    folder = Path(run)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {run}")
    return folder if (folder / RANKS).is_dir() else folder / RESULTS


def _from_mlflow(run: str, into: Path) -> Path:
    """Download artifacts of the run itself or of the train run that its tags link to."""
    from mlflow.artifacts import download_artifacts

    from dayahead.tracking.store import Store
    from dayahead.tracking.uploader import LINEAGE_TAG

    store = Store()
    source = store.client.get_run(run).data.tags.get(f"{LINEAGE_TAG}train", run)
    into.mkdir(parents=True, exist_ok=True)
    there = {each.path for each in store.client.list_artifacts(source)}
    for name in (RANKS, WINDOWS, *({LISTS} & there)):
        download_artifacts(
            run_id=source, artifact_path=name, dst_path=str(into), tracking_uri=store.uri
        )
    return into


def _from_dvc(run: str, into: Path) -> Path:
    """Read files of a revision: from Git where it has them, else from DVC's cache or remote."""
    from dvc.api import DVCFileSystem

    files = DVCFileSystem(str(project_root()), rev=run)
    into.mkdir(parents=True, exist_ok=True)
    try:
        files.get(f"{RESULTS}/{RANKS}", str(into / RANKS), recursive=True)
        files.get_file(f"{RESULTS}/{WINDOWS}", str(into / WINDOWS))
        if files.exists(f"{RESULTS}/{LISTS}"):
            files.get_file(f"{RESULTS}/{LISTS}", str(into / LISTS))
    except AttributeError:  # pygit2 raises it for a tree or a file
        raise ValueError(f"{run} is no commit") from None
    return into
