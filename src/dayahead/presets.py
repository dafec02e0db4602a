"""Presets, the rows of the files in presets/, as options of DVC; names of files in searches/."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from dayahead.config.loading import STRICT, read_yaml, validated
from dayahead.config.overrides import overrides_of
from dayahead.config.params import Params
from dayahead.config.sections import Settings, flattened, merged, nested
from dayahead.core.errors import ConfigError
from dayahead.core.files import written_whole
from dayahead.core.suggestions import did_you_mean


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PresetFile:
    """presets/<data set>.yaml: named rows of settings, by section as in params.yaml."""

    common: dict[str, Any] = field(default_factory=dict)
    """Settings of every row."""
    rows: dict[str, dict[str, Any]]
    """Settings of each row by its name; they go before those of `common`."""


def preset_names(folder: Path) -> list[str]:
    """Return the names of all presets of a folder's files, such as g1/xlnet-mlm."""
    files = sorted(folder.glob("*.yaml"))
    return sorted(f"{path.stem}/{row}" for path in files for row in _read(path).rows)


def _read(path: Path) -> PresetFile:
    # Validated, as YAML reads a date without quotes as one, which is no text of an option.
    return validated(PresetFile, read_yaml(path), str(path))


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
    validated(Params, merged(base, changed), f"preset {name}")
    return options_of(changed)


def preset_settings(name: str, folder: Path) -> Settings:
    """Return the settings of a preset, `<file>/<row>`, of the files in `folder`, by their names.

    Raises:
        ConfigError: there is no such preset, or its file has another form.
    """
    file_name, _, row = name.partition("/")
    path = folder / f"{file_name}.yaml"
    file = _read(path) if path.is_file() else None
    if file is None or row not in file.rows:
        known = preset_names(folder)
        close = did_you_mean(name, known)
        found = (
            f"{close} `dayahead preset` lists all"
            if close
            else f"expected one of {', '.join(known)}"
        )
        raise ConfigError(f"{path}: no such preset: {name}; {found}")
    return flattened(file.common) | flattened(file.rows[row])


def add_preset(name: str, settings: Settings, comment: str, folder: Path) -> None:
    """Write settings, by their names, as the preset `<file>/<row>`; other rows stay as they are.

    Raises:
        ConfigError: the file is there and has another form.
    """
    file_name, _, row = name.partition("/")
    path = folder / f"{file_name}.yaml"
    yaml = YAML()
    yaml.default_flow_style = False
    if path.is_file():
        _read(path)
        file = yaml.load(path.read_text(encoding="utf-8"))
    else:
        file = CommentedMap(rows=CommentedMap())
    file["rows"][row] = nested(settings)
    file["rows"].yaml_set_comment_before_after_key(row, before=comment, indent=2)
    with written_whole(path) as temporary, temporary.open("w", encoding="utf-8") as text:
        yaml.dump(file, text)


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings by their names as options of `dvc exp run`."""
    return [f"-S{each}" for key, value in settings.items() for each in overrides_of(key, value)]
