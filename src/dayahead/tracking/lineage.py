"""Where a run comes from: its inputs, the stages before it, its experiment and Git commit."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pydantic_core import to_json

from dayahead.config.loading import read_yaml
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.core.redaction import redacted

MANIFEST = "manifest.json"
"""File of an output folder with the hashes of sources that no dependency names (URLs)."""
_TEMPLATE = re.compile(r"\$\{\s*([\w.]+)\s*\}")


@dataclass(frozen=True)
class Lineage:
    """A stage's place in the pipeline; empty where dvc.yaml cannot be read.

    Two runs of a stage with equal fingerprints had the same command, parameters and inputs, all
    the way back to the sources: the run of a stage that DVC skipped is found by it.
    """

    fingerprint: str | None = None
    upstream: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of every stage before this one, the earliest first."""
    params: tuple[str, ...] | None = None
    """The parameters that dvc.yaml lists for the stage."""


def lineage_of(stage: str, folder: Path) -> Lineage:
    """Compute a stage's lineage from dvc.yaml, params.yaml and the files that they name.

    Raises:
        ConfigError: no such stage, or a file is missing or not YAML.
    """
    pipeline = _Pipeline(folder)
    pipeline.fingerprint_of(stage)
    upstream = dict(pipeline.fingerprints)
    return Lineage(upstream.pop(stage), upstream, tuple(pipeline.params_of(stage)))


class _Pipeline:
    """The stages of one dvc.yaml."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._params = _read_yaml(folder / "params.yaml") or {}
        text = json.dumps(_read_yaml(folder / "dvc.yaml")["stages"])
        self._stages: dict[str, dict[str, Any]] = json.loads(
            _TEMPLATE.sub(lambda found: str(self._value(found[1])), text)
        )
        self._producers = {
            str(next(iter(out)) if isinstance(out, Mapping) else out): name
            for name, stage in self._stages.items()
            for kind in ("outs", "metrics", "plots")
            for out in stage.get(kind, [])
        }
        self.fingerprints: dict[str, str] = {}
        """Fingerprints of the stages so far; each stage comes after those that it depends on."""

    def fingerprint_of(self, name: str) -> str:
        """Hash command, parameter values and dependencies; outputs count by their stages."""
        if name not in self._stages:
            raise ConfigError(f"{self._folder / 'dvc.yaml'}: no stage {name!r}")
        if name not in self.fingerprints:
            stage = self._stages[name]
            params = {param: self._value(param) for param in self.params_of(name)}
            deps = {path: self._content(path) for path in stage.get("deps", [])}
            facts = {"cmd": stage.get("cmd"), "params": params, "deps": deps}
            self.fingerprints[name] = fingerprint(facts)
        return self.fingerprints[name]

    def params_of(self, name: str) -> list[str]:
        return [param for param in self._stages[name].get("params", []) if isinstance(param, str)]

    def _content(self, dep: str) -> str | dict[str, str] | None:
        path = self._folder / dep
        if (producer := self._producer(dep)) is not None:
            made = self.fingerprint_of(producer)
            manifest = path / MANIFEST
            return {"made": made, MANIFEST: sha256_of(manifest)} if manifest.is_file() else made
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.is_file()]
            # Python writes them when the source is imported, so they differ without a change.
            files = [file for file in files if file.suffix != ".pyc"]
            return {str(file.relative_to(path)): sha256_of(file) for file in files}
        return sha256_of(path) if path.exists() else None

    def _producer(self, dep: str) -> str | None:
        """The stage that writes a dependency, a folder around it, or a file in it."""
        around = [dep, *map(str, Path(dep).parents)]
        inside = [out for out in self._producers if out.startswith(f"{dep}/")]
        found = [self._producers[out] for out in around + inside if out in self._producers]
        return found[0] if found else None

    def _value(self, param: str) -> object:
        value: Any = self._params
        for part in param.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def _read_yaml(path: Path) -> Any:  # noqa: ANN401
    """A YAML file's values as JSON has them: an unquoted date becomes its text."""
    return json.loads(to_json(read_yaml(path)))


def origin_tags(stage: str) -> dict[str, str]:
    """Return tags that link a run to its DVC experiment and Git commit."""
    commit = _git("rev-parse", "HEAD")
    is_dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    experiment = os.environ.get("DVC_EXP_NAME", "")
    note = f"Restore with `git checkout {commit} && dvc repro`." if commit else ""
    if commit and is_dirty:
        note += " The working tree had uncommitted changes."
    script = f"stages/{stage}.py"
    tags = {
        "dvc.exp_name": experiment,
        "dvc.exp_baseline_rev": os.environ.get("DVC_EXP_BASELINE_REV", ""),
        "git.commit": commit,
        "git.dirty": str(is_dirty).lower() if commit else "",
        "mlflow.source.git.commit": commit,
        "mlflow.source.name": script if Path(script).exists() else f"dayahead {stage}",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": psutil.Process().username(),
        "mlflow.note.content": f"Restore with `dvc exp apply {experiment}`."
        if experiment
        else note,
    }
    return {key: redacted(value) for key, value in tags.items() if value}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
