"""Settings by section, as in params.yaml, and by their names: {"model.n_layer": 2, ...}."""

from collections.abc import Container, Mapping
from typing import Any

Settings = dict[str, Any]
"""Settings by their names; the value of a setting may itself be a mapping."""


def flattened(sections: Mapping[str, Any]) -> Settings:
    """Return settings by their names: {"model.n_layer": 2, "dataset": "g1"}."""
    flat: Settings = {}
    for section, value in sections.items():
        if isinstance(value, Mapping):
            flat |= {f"{section}.{key}": setting for key, setting in value.items()}
        else:
            flat[section] = value
    return flat


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by section, the inverse of `flattened`."""
    sections: dict[str, Any] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if key:
            if not isinstance(sections.get(section), dict):  # a plain value
                sections[section] = {}
            sections[section][key] = value
        else:
            sections[section] = value
    return sections


def merged(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections `base` with some settings, given by their names, changed."""
    return nested(flattened(base) | dict(settings))


def without_sections(settings: Mapping[str, Any], left_out: Container[str]) -> Settings:
    """Return settings, given by their names, without those of some sections."""
    return {key: value for key, value in settings.items() if key.partition(".")[0] not in left_out}
