"""Presets as options of DVC, and the names of the files in presets/, searches/ and studies/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayahead.config.loading import read_yaml, validated
from dayahead.config.overrides import overrides_of
from dayahead.config.params import Params
from dayahead.config.sections import Settings, flattened, merged
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import did_you_mean


def preset_names(folder: Path) -> list[str]:
    """Return the names of all presets in a folder, such as g1/xlnet-mlm."""
    presets = (each.relative_to(folder) for each in folder.glob("*/*.yaml"))
    return sorted(preset.with_suffix("").as_posix() for preset in presets)


def search_names(folder: Path) -> list[str]:
    """Return the names of all YAML files in a folder: of search spaces, or of studies."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def named_file(name: str, folder: Path, what: str) -> Path:
    """Return the path of a search space or study: `name` in `folder`, or a file's path.

    Raises:
        ConfigError: there is none.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = search_names(folder)
        suggestion = did_you_mean(name, known) or f"expected a file, or one of {', '.join(known)}"
        raise ConfigError(f"{path}: no such {what}; {suggestion}")
    return path


def preset_options(name: str, folder: Path, params: Path) -> list[str]:
    """Return a preset, such as g1/xlnet-mlm, as options of `dvc exp run`: -Smodel.d_model=128 ...

    `folder` holds the presets, `params` the settings that they change.

    Raises:
        ConfigError: no such preset, or it does not fit the settings.
    """
    changed, base = preset_settings(name, folder), read_yaml(params)
    validated(Params, base, str(params))
    validated(Params, merged(base, changed), str(folder / f"{name}.yaml"))
    return options_of(changed)


def preset_settings(name: str, folder: Path) -> Settings:
    """Return the settings of a preset in `folder`, by their names.

    Raises:
        ConfigError: there is no such preset, or its file holds no sections of settings.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = preset_names(folder)
        close = did_you_mean(name, known)
        found = (
            f"{close} `dayahead preset` lists all"
            if close
            else f"expected one of {', '.join(known)}"
        )
        raise ConfigError(f"{path}: no such preset; {found}")
    # Validated, as YAML reads a date without quotes as one, which is no text of an option.
    return flattened(validated(dict[str, Any], read_yaml(path), str(path)))


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings by their names as options of `dvc exp run`."""
    return [f"-S{each}" for key, value in settings.items() for each in overrides_of(key, value)]
