"""The tracking store: where it is, and its creation by one process at a time."""

import os
import re
import sqlite3
from contextlib import closing
from functools import cached_property
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage

from dayahead.core.errors import TrackingError
from dayahead.core.project import project_root
from dayahead.tracking.experiment_view import EXPERIMENT_TAGS, VIEW
from dayahead.tracking.library_logs import restrict_library_logs

restrict_library_logs()

ARTIFACTS = "mlartifacts"
LOCK_SECONDS = 120
_PATHS = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}
"""Columns of MLflow's tables that hold paths of artifacts, which are absolute."""
_RELATIVE_SQLITE = re.compile(r"^(sqlite(?:\+\w+)?:///)(?![/:])(.+)$")


def tracking_uri(root: Path) -> str:
    """Return `$MLFLOW_TRACKING_URI`, made absolute against `root`, else a SQLite file in `root`."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    if found := _RELATIVE_SQLITE.match(uri):
        return f"{found[1]}{root / found[2]}"
    if "://" in uri or uri.startswith("databricks"):
        return uri
    return (root / uri.removeprefix("file:")).resolve().as_uri()


def artifact_location(uri: str, root: Path) -> str | None:
    """Return an absolute folder for the artifacts of a database; None where the server decides.

    MLflow's default is relative to the working folder, and DVC deletes that of --temp runs.
    """
    if database := _database(uri):
        return str(database.parent / ARTIFACTS)
    return str(root / ARTIFACTS) if re.match(r"^(postgresql|mysql|mssql)", uri) else None


def _database(uri: str) -> Path | None:
    """Return the file of a SQLite store, None for other stores."""
    return Path(uri.partition(":///")[2]) if uri.startswith("sqlite") else None


class Store:
    """The project's MLflow tracking store, opened at first use; methods pass its exceptions on."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or project_root()
        self.uri = tracking_uri(self.root)

    @cached_property
    def client(self) -> MlflowClient:
        """The client; locked, because processes that create one database at once would break it."""
        with self.lock():
            client = MlflowClient(self.uri, registry_uri=self.uri)
            if database := _database(self.uri):
                _follow_move(database)
            return client

    def lock(self) -> FileLock:
        """Lock for creating objects that must exist only once; reentrant within a process."""
        base = _database(self.uri) or self.root / ".dayahead/mlflow"
        base.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(f"{base}.lock", timeout=LOCK_SECONDS, is_singleton=True)

    def experiment_id(self, name: str) -> str:
        """Return an experiment's id; create it with an absolute artifact location if missing.

        Existing tags stay, because a user may have changed them.

        Raises:
            TrackingError: it was deleted in MLflow.
        """
        with self.lock():
            if found := self.client.get_experiment_by_name(name):
                if found.lifecycle_stage != LifecycleStage.ACTIVE:
                    raise TrackingError(
                        f"experiment {name} was deleted in MLflow: restore it by `mlflow "
                        f"experiments restore --experiment-id {found.experiment_id}` (with "
                        f"MLFLOW_TRACKING_URI set as here), or name another one by "
                        f"tracking.experiment; then `dayahead track --sync`"
                    )
                for tag in EXPERIMENT_TAGS.keys() - found.tags.keys():
                    self.client.set_experiment_tag(found.experiment_id, tag, EXPERIMENT_TAGS[tag])
                return str(found.experiment_id)
            location = artifact_location(self.uri, self.root)
            return str(self.client.create_experiment(name, location, EXPERIMENT_TAGS))

    def page_of(self, experiment: str, *, compared: bool = False) -> str:
        """Return the path of the page with an experiment's runs.

        It is the table, whose first columns are those that matter, or with `compared` the charts of
        averages over windows, above the settings that differ.
        """
        mode = "&compareRunsMode=CHART" if compared else ""
        query = f"workflowType=machine_learning{mode}&viewStateShareKey={VIEW}"
        return f"/#/experiments/{self.experiment_id(experiment)}/runs?{query}"


def _follow_move(database: Path) -> None:
    """Point the paths of artifacts at the folder beside a database, if both were moved together.

    They were if an experiment has its artifacts in a folder of the same name that does not exist.
    Without this, new runs would write into the old place, and artifacts of old runs be lost.
    """
    artifacts = database.parent / ARTIFACTS
    with closing(sqlite3.connect(database, timeout=LOCK_SECONDS)) as connection, connection:
        found = connection.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
        for old in (Path(location) for [location] in found if location):
            is_ours = old.is_absolute() and old.name == artifacts.name
            if is_ours and old != artifacts and not old.exists():
                _replace(connection, str(old), str(artifacts))


def _replace(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Replace the beginning of paths."""
    for table, columns in _PATHS.items():
        for column in columns:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - constants
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )
