"""What equal runs have equal: all outputs but clock times."""

import filecmp
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from ruamel.yaml import YAML

from support.window_folders import bytes_in

T = TypeVar("T")
_TIMES = ("timing.csv", "phases/")
"""In results/."""


def without_times(files: Mapping[str, T]) -> dict[str, T]:
    """Leave clock times out of what is known of files, by their path in results/ or above it."""
    return {
        path: found
        for path, found in files.items()
        if not path.removeprefix("results/").startswith(_TIMES)
    }


def outputs_in(folder: Path) -> dict[str, bytes]:
    """Content of all outputs of training and averaging but clock times."""
    return without_times(bytes_in(folder / "models") | bytes_in(folder / "results"))


def locked_outputs(lock_text: str) -> dict[str, str]:
    """Hash of every output but clock times, by its path, in the text of a dvc.lock."""
    stages = YAML(typ="safe").load(lock_text)["stages"].values()
    return without_times({out["path"]: out["md5"] for stage in stages for out in stage["outs"]})


def same_files(first: Path, second: Path, *names: str) -> bool:
    """Whether files of two folders, by their paths there, have the same bytes."""
    return all(filecmp.cmp(first / name, second / name, shallow=False) for name in names)
