"""presets/<data set>/<row>.yaml: what to set in params.yaml for a published result."""

import json
from pathlib import Path
from typing import Any

from dayahead.config.loading import read_yaml, validated
from dayahead.config.params import Params
from dayahead.core.errors import ConfigError


def preset_options(
    name: str, folder: Path = Path("presets"), params: Path = Path("params.yaml")
) -> list[str]:
    """Spell a preset as options of `dvc exp run`: -S model.d_model=128 ...

    Args:
        name: data set and row, as in g1/xlnet-mlm.
        folder: where presets are.
        params: the settings that they change.

    Raises:
        ConfigError: an unknown preset, or one that does not fit the settings.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.relative_to(folder).with_suffix("").as_posix()
                                 for p in folder.glob("*/*.yaml")))  # fmt: skip
        raise ConfigError(f"{path}: no such preset; known are {known}")
    changes = _leaves(read_yaml(path))
    settings = _leaves(read_yaml(params))
    if unknown := sorted(set(changes) - set(settings)):
        raise ConfigError(f"{path}: params.yaml has no setting {', '.join(unknown)}")
    validated(Params, _tree(settings | changes), str(path))
    return [f"-S{key}={_spelled(value)}" for key, value in changes.items()]


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, part in value.items():
        leaves |= _leaves(part, f"{prefix}.{key}" if prefix else key)
    return leaves


def _tree(leaves: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in leaves.items():
        *sections, last = key.split(".")
        section = tree
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return tree


def _spelled(value: Any) -> str:  # noqa: ANN401
    """Write a value as Hydra reads it, without a blank that a shell would split at."""
    if isinstance(value, list):
        return f"[{','.join(_spelled(part) for part in value)}]"
    return value if isinstance(value, str) else json.dumps(value)
