"""The settings of results, as dvc.lock has them."""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dayahead.config.loading import parse_yaml
from dayahead.config.sections import Settings, flattened
from dayahead.core.errors import ConfigError

PARAMS, LOCK = "params.yaml", "dvc.lock"


def committed_dataset(root: Path) -> str | None:
    """Return the data set of the results in a project's last commit, None if it has none."""
    return locked(_committed(root, LOCK)).get("dataset")


def locked(lock: str | None) -> Settings:
    """Return the settings that the stages of dvc.lock ran with, by name; none without a file."""
    found: Settings = {}
    try:
        for stage in _parsed(lock, LOCK).get("stages", {}).values():
            found |= flattened(stage.get("params", {}).get(PARAMS, {}))
    except AttributeError:  # a part is no mapping: DVC refuses this file
        return {}
    return found


def _parsed(text: str | None, name: str) -> Mapping[str, Any]:
    """Parse a file's text; empty where there is none, or it is no mapping."""
    with suppress(ConfigError):
        if isinstance(found := parse_yaml(text or "", name), Mapping):
            return found
    return {}


def text_of(path: Path) -> str | None:
    """Return the text of a file, None if it is not there."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _committed(root: Path, name: str) -> str | None:
    """Return the text of a file in the last commit, None if it is not there."""
    command = ["git", "show", f"HEAD:./{name}"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="replace")
