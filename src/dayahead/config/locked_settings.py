"""Whether params.yaml holds the settings of the results, which are those of dvc.lock.

A commit of dvc.lock alone names the results of one study and the settings of another: a clone then
shows the former and trains the latter.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dayahead.config.loading import parse_yaml
from dayahead.config.sections import Settings, flattened
from dayahead.core.errors import ConfigError

PARAMS, LOCK = "params.yaml", "dvc.lock"
N_NAMED: Final = 3
"""Settings that a line names."""


def disagreements(root: Path) -> Iterator[str]:
    """Yield a line if settings and results of a project disagree, and one if its last commit's do.

    A file that is missing or cannot be read, as in the middle of a merge, is compared with nothing.
    """
    params, lock = text_of(root / PARAMS), text_of(root / LOCK)
    if found := _difference(params, locked(lock)):
        yield (
            f"params.yaml and dvc.lock disagree on {found}. The results are those of dvc.lock: set "
            f"params.yaml alike, or run `dvc repro`; then commit both"
        )
    committed = _committed(root, PARAMS), _committed(root, LOCK)
    settings = locked(committed[1])
    if committed != (params, lock) and (found := _difference(committed[0], settings)):
        yield (
            f"params.yaml and dvc.lock of the last commit disagree on {found}, so that a clone "
            f"trains with other settings than those of its results: commit both (git add "
            f"params.yaml dvc.lock datasets)"
        )
    dataset = f"datasets/{settings.get('dataset')}.yaml"
    if (root / dataset).exists() and _committed(root, dataset) is None:
        yield f"{dataset}: not committed, though dvc.lock is: git add {dataset}, and commit"


def committed_dataset(root: Path) -> str | None:
    """Return the data set of the results in a project's last commit, None if it has none."""
    return locked(_committed(root, LOCK)).get("dataset")


def _difference(params: str | None, of_lock: Settings) -> str:
    """Name the settings that differ, with both values; empty if none does, or there is no file."""
    if not (own := flattened(_parsed(params, PARAMS))):
        return ""
    changed = [
        f"{name} ({own.get(name)}, {value})"
        for name, value in of_lock.items()
        if own.get(name) != value
    ]
    more = f" and {len(changed) - N_NAMED} more" if len(changed) > N_NAMED else ""
    return ", ".join(changed[:N_NAMED]) + more


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
