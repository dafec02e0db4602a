"""presets/: settings of published results by data set, and ablations of `memory`; searches/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayahead.config.loading import read_yaml, validated
from dayahead.config.overrides import overrides_of
from dayahead.config.params import Params
from dayahead.config.sections import flattened, merged
from dayahead.core.errors import ConfigError


def preset_names(folder: Path) -> list[str]:
    """Return the names of all presets in a folder, such as g1/xlnet-mlm."""
    presets = (each.relative_to(folder) for each in folder.glob("*/*.yaml"))
    return sorted(preset.with_suffix("").as_posix() for preset in presets)


def search_names(folder: Path) -> list[str]:
    """Return the names of all search spaces in a folder."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def preset_options(name: str, folder: Path, params: Path) -> list[str]:
    """Return a preset, such as g1/xlnet-mlm, as options of `dvc exp run`: -Smodel.d_model=128 ...

    `folder` holds the presets, `params` the settings that they change.

    Raises:
        ConfigError: no such preset, or it does not fit the settings.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(preset_names(folder))
        raise ConfigError(f"{path}: no such preset; expected one of {known}")
    changed = flattened(read_yaml(path))
    validated(Params, merged(read_yaml(params), changed), str(path))
    return options_of(changed)


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings by their names as options of `dvc exp run`."""
    return [f"-S{each}" for key, value in settings.items() for each in overrides_of(key, value)]
