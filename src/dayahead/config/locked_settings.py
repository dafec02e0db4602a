"""Whether params.yaml holds the settings of the results, which are those of dvc.lock.

A commit of dvc.lock alone names the results of one study and the settings of another: a clone then
shows the former and trains the latter.
"""

import subprocess
from collections.abc import Iterator, Mapping
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
    present = {name: _file(root / name) for name in (PARAMS, LOCK)}
    if found := _difference(**_read(present)):
        yield (
            f"params.yaml and dvc.lock disagree on {found}. The results are those of dvc.lock: set "
            f"params.yaml alike, or run `dvc repro`; then commit both"
        )
    committed = {name: _committed(root, name) for name in (PARAMS, LOCK)}
    settings = _read(committed)
    if committed != present and (found := _difference(**settings)):
        yield (
            f"params.yaml and dvc.lock of the last commit disagree on {found}, so that a clone "
            f"trains with other settings than those of its results: commit both (git add "
            f"params.yaml dvc.lock datasets)"
        )
    dataset = f"datasets/{locked(settings['lock']).get('dataset')}.yaml"
    if (root / dataset).exists() and _committed(root, dataset) is None and committed[LOCK]:
        yield f"{dataset}: not committed, though dvc.lock is: git add {dataset}, and commit"


def committed_dataset(root: Path) -> str | None:
    """Return the data set of the results in a project's last commit, None if it has none."""
    lock = _read({PARAMS: None, LOCK: _committed(root, LOCK)})["lock"]
    return locked(lock).get("dataset")


def _difference(params: Mapping[str, Any], lock: Mapping[str, Any]) -> str:
    """Name the settings that differ, with both values; empty if none does."""
    if not params or not lock:
        return ""
    own = flattened(params)
    changed = [
        f"{name} ({own.get(name)}, {value})"
        for name, value in locked(lock).items()
        if own.get(name) != value
    ]
    more = f" and {len(changed) - N_NAMED} more" if len(changed) > N_NAMED else ""
    return ", ".join(changed[:N_NAMED]) + more


def locked(lock: Mapping[str, Any]) -> Settings:
    """Return the settings that the stages of dvc.lock ran with, by name."""
    found: Settings = {}
    try:
        for stage in lock.get("stages", {}).values():
            found |= flattened(stage.get("params", {}).get(PARAMS, {}))
    except AttributeError:  # a part is no mapping: DVC refuses this file
        return {}
    return found


def _read(texts: Mapping[str, str | None]) -> dict[str, Mapping[str, Any]]:
    """Parse params.yaml and dvc.lock; empty where there is none."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, name in (("params", PARAMS), ("lock", LOCK)):
        try:
            value = parse_yaml(texts[name] or "", name)
        except ConfigError:
            value = None
        found[key] = value if isinstance(value, Mapping) else {}
    return found


def _file(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _committed(root: Path, name: str) -> str | None:
    """Return the text of a file in the last commit, None if it is not there."""
    command = ["git", "show", f"HEAD:./{name}"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="replace")
