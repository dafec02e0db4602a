"""A SQLite store whose folder was moved: MLflow keeps absolute paths of artifacts."""

import sqlite3
from contextlib import closing
from pathlib import Path

_PATHS = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}
"""Columns of MLflow's tables that hold paths of artifacts."""


def follow_move(database: Path, artifacts: Path, timeout: float) -> None:
    """Point the paths of artifacts at a folder beside the database, if both were moved together.

    They were if an experiment has its artifacts in a folder of the same name that does not exist.
    Without this, new runs would write into the old place, and artifacts of old runs be lost.

    Args:
        database: a SQLite file that MLflow has made.
        artifacts: the folder beside it.
        timeout: seconds to wait for another process that writes.
    """
    with closing(sqlite3.connect(database, timeout=timeout)) as connection, connection:
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
