"""The results of a run, wherever they are: a folder, MLflow, a DVC experiment, a Git revision."""

import re
from collections.abc import Callable
from pathlib import Path

from dvc.api import DVCFileSystem
from dvc.exceptions import DvcException
from dvc.scm import SCMError
from mlflow import MlflowException
from mlflow.artifacts import download_artifacts

from dayahead.core.errors import ComparisonError
from dayahead.core.project import project_root
from dayahead.tracking.store import open_store
from dayahead.tracking.uploader import LINEAGE_TAG

RANKS = "ranks"
WINDOWS = "windows.csv"
RESULTS = "results"
_RUN_ID = re.compile(r"^[0-9a-f]{32}$")


def results_of(run: str, into: Path) -> Path:
    """Find the results of a run and return a folder with ranks/*.parquet and windows.csv.

    Args:
        run: A results folder, MLflow run id, DVC experiment or Git revision.
        into: Where to put what has to be fetched.

    Raises:
        ComparisonError: none of these has such results; says what was tried.
    """
    ways: list[Callable[[str, Path], Path]] = [_from_folder, _from_dvc]
    if _RUN_ID.match(run):
        ways.insert(1, _from_mlflow)
    tried = []
    for way in ways:
        try:
            return _checked(way(run, into))
        except (DvcException, SCMError, MlflowException, OSError) as error:
            tried.append(f"{way.__name__.removeprefix('_from_')}: {_first_line(error)}")
    raise ComparisonError(
        f"{run}: no results found; expected a results folder, an MLflow run id, a DVC experiment "
        f"or a Git revision (tried {'; '.join(tried)})"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _checked(folder: Path) -> Path:
    if not (folder / WINDOWS).is_file() or not any((folder / RANKS).glob("*.parquet")):
        raise FileNotFoundError(f"{folder} holds no {RANKS}/*.parquet beside {WINDOWS}")
    return folder


def _from_folder(run: str, _into: Path) -> Path:
    folder = Path(run)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {run}")
    return folder if (folder / RANKS).is_dir() else folder / RESULTS


def _from_mlflow(run: str, into: Path) -> Path:
    """The artifacts of the run itself or of the train run that its tags lead to."""
    store = open_store()
    tags = store.client.get_run(run).data.tags
    source = tags.get(f"{LINEAGE_TAG}train", run)
    into.mkdir(parents=True, exist_ok=True)
    for artifact in (RANKS, WINDOWS):
        download_artifacts(
            run_id=source, artifact_path=artifact, dst_path=str(into), tracking_uri=store.uri
        )
    return into


def _from_dvc(run: str, into: Path) -> Path:
    """Files of a revision: out of Git where it has them, else out of DVC's cache or remote."""
    files = DVCFileSystem(str(project_root()), rev=run)
    into.mkdir(parents=True, exist_ok=True)
    files.get(f"{RESULTS}/{RANKS}", str(into / RANKS), recursive=True)
    files.get_file(f"{RESULTS}/{WINDOWS}", str(into / WINDOWS))
    return into
