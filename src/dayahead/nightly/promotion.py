"""A challenger that won becomes the champion: its settings go into params.yaml."""

import difflib
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.core.files import written_whole
from dayahead.nightly.champion import trial_of
from dayahead.nightly.history import State

FILE = "params.yaml"


def promote(root: Path, name: str, state: State) -> str:
    """Write a winner's settings into params.yaml and take it off the list; return the diff.

    The next night takes them for the champion's. Comments and order of the file stay.

    Raises:
        ConfigError: there is no such challenger, or it has not won with these settings.
    """
    path = root / FILE
    params = load_params(path)
    challengers = params.nightly.challengers
    won = [each for each in challengers if state.won({trial_of(params, path, each).id})]
    if name not in won:
        raise ConfigError(
            f"{path}: {name} is no challenger that won, with the settings that it and the "
            f"champion have there; expected one of nightly.challengers: "
            f"{', '.join(won) or 'none has won yet'}"
        )
    changes = challengers[name]
    before = path.read_text(encoding="utf-8")
    # ruamel's default mode keeps comments and order.
    yaml = YAML()
    value: Any = yaml.load(before)
    for section, settings in changes.items():
        value[section].update(settings)
    del value["nightly"]["challengers"][name]
    with written_whole(path) as temporary:
        yaml.dump(value, temporary)
    after = path.read_text(encoding="utf-8")
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), FILE, FILE
        )
    )


def commit(root: Path, name: str) -> None:
    """Commit params.yaml alone to Git.

    Raises:
        ConfigError: Git refuses.
    """
    command = ["git", "commit", "--quiet", "-m", f"nightly: promote {name}", "--", FILE]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip() or done.stdout.strip()
        raise ConfigError(f"{root / FILE}: written, but not committed: {reason}")
