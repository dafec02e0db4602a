"""Fingerprints of stages, computed from dvc.yaml, params.yaml and the files it names.

Two runs of a stage with equal fingerprints had the same command, parameters and inputs, all the
way back to the sources: the run of a stage that DVC skipped is found by it.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from dayahead.config.loading import read_yaml
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import fingerprint, sha256_of

MANIFEST = "manifest.json"
"""What an output folder says of sources that no dependency names, such as files of the web."""
_TEMPLATE = re.compile(r"\$\{\s*([\w.]+)\s*\}")


class Pipeline:
    """The stages of one dvc.yaml, as its text and files are when first asked."""

    def __init__(self, folder: Path) -> None:
        """Read dvc.yaml and params.yaml of `folder`.

        Raises:
            ConfigError: either is missing or not YAML.
        """
        self.folder = folder
        self._params = _plain(folder / "params.yaml") or {}
        self._stages = {
            name: self._resolved(stage)
            for name, stage in _plain(folder / "dvc.yaml")["stages"].items()
        }
        self._known: dict[str, str] = {}

    def fingerprint_of(self, stage: str) -> str:
        """Hex sha256 over command, parameter values and dependencies; outputs by their stages.

        Raises:
            ConfigError: no such stage.
        """
        if stage not in self._known:
            entry = self._entry(stage)
            self._known[stage] = fingerprint(
                {
                    "cmd": entry.get("cmd"),
                    "params": {name: self._value(name) for name in self.params_of(stage)},
                    "deps": {path: self._content(path) for path in entry.get("deps", [])},
                }
            )
        return self._known[stage]

    def upstream_of(self, stage: str) -> list[str]:
        """Every stage before `stage`, the earliest first."""
        found: list[str] = []
        for path in self._entry(stage).get("deps", []):
            maker = self._maker(path)
            if maker is not None:
                found += [*self.upstream_of(maker), maker]
        return list(dict.fromkeys(found))

    def params_of(self, stage: str) -> list[str]:
        """The parameters (of params.yaml) that a stage lists."""
        return [name for name in self._entry(stage).get("params", []) if isinstance(name, str)]

    def _entry(self, stage: str) -> dict[str, Any]:
        if stage not in self._stages:
            raise ConfigError(f"{self.folder / 'dvc.yaml'}: no stage {stage!r}")
        entry: dict[str, Any] = self._stages[stage]
        return entry

    @cached_property
    def _makers(self) -> dict[str, str]:
        return {
            str(next(iter(out)) if isinstance(out, Mapping) else out): name
            for name, stage in self._stages.items()
            for kind in ("outs", "metrics", "plots")
            for out in stage.get(kind, [])
        }

    def _maker(self, path: str) -> str | None:
        places = [path, *(str(folder) for folder in Path(path).parents)]
        inside = (made for made in self._makers if made.startswith(f"{path}/"))
        return next(
            (self._makers[place] for place in (*places, *inside) if place in self._makers), None
        )

    def _content(self, path: str) -> str | dict[str, str] | None:
        if (maker := self._maker(path)) is not None:
            made = self.fingerprint_of(maker)
            manifest = self.folder / path / MANIFEST
            return {"made": made, MANIFEST: sha256_of(manifest)} if manifest.is_file() else made
        place = self.folder / path
        if place.is_dir():
            return {
                str(file.relative_to(place)): sha256_of(file)
                for file in sorted(place.rglob("*"))
                if file.is_file() and file.suffix != ".pyc"
            }
        return sha256_of(place) if place.exists() else None

    def _value(self, name: str) -> object:
        value: Any = self._params
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _resolved(self, stage: Mapping[str, Any]) -> dict[str, Any]:
        """The stage with ${...} filled in from params.yaml, as DVC does."""
        text = _TEMPLATE.sub(lambda found: str(self._value(found[1])), json.dumps(stage))
        resolved: dict[str, Any] = json.loads(text)
        return resolved


def _plain(path: Path) -> Any:  # noqa: ANN401
    """A YAML file's values as JSON has them: an unquoted date becomes its text."""
    return json.loads(to_json(read_yaml(path)))
