"""A scratch copy of the project over hours of G1's clicks, whose stages run as a user's do."""

import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, dropwhile, takewhile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dayahead.core.files import read_json
from dayahead.core.fingerprints import sha256_of

PROJECT = Path(__file__).parents[1]
COPIED = ("src", "stages", "datasets", "dvc.yaml", "params.yaml", "requirements.txt")
NOT_COMPARED = ("timing.csv", "report.html")
"""Clock times, and the page that shows them."""
FINISHED = ("fits", "measures")
"""Folders of the store that training fills."""


@dataclass(frozen=True)
class Scratch:
    """A folder with the project's source, its settings and a store of its own."""

    folder: Path

    @classmethod
    def begun(cls, folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> "Scratch":
        """Copy the project and change its settings; it has no clicks yet."""
        for name in COPIED:
            copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copyfile
            copy(PROJECT / name, folder / name)
        made = cls(folder)
        made.set("params.yaml", {"dataset": "g1", **settings})
        return made

    def set(self, file: str, changes: Mapping[str, Any]) -> None:
        """Change values of a YAML file, section by section."""
        yaml = YAML()
        document = yaml.load(self.folder / file)
        for name, value in changes.items():
            if isinstance(value, Mapping):
                document[name].update(value)
            else:
                document[name] = value
        yaml.dump(document, self.folder / file)

    def add_clicks(self, begin: datetime, end: datetime) -> None:
        """Write a file of G1's sessions that start from `begin` to `end`, where the log now ends.

        The original's files hold whole sessions, in order of their start, too.
        """
        folder = self.folder / "clicks" / "g1-news"
        folder.mkdir(parents=True, exist_ok=True)
        header, lines = _g1()
        later = dropwhile(lambda line: _start_of(line) < begin.timestamp(), lines)
        with gzip.open(folder / f"clicks-{begin:%Y%m%dT%H}.csv.gz", "wt") as file:
            file.write(header)
            file.writelines(takewhile(lambda line: _start_of(line) < end.timestamp(), later))
        self.set("datasets/g1.yaml", {"time": {"complete_until": end}})

    def prepare(self) -> None:
        """Cut the clicks into windows."""
        self.stage("download")
        self.stage("preprocess")

    def stage(self, name: str) -> float:
        """Run a stage in a process of its own; its seconds."""
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment |= {"PYTHONPATH": "src", "DAYAHEAD_DATA": str(self.folder / "clicks")}
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, f"stages/{name}.py"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return seconds

    def left(self) -> dict[str, str]:
        """The sha256 of all that counts of a finished run, by path."""
        self.stage("aggregate")
        folders = [self.folder / name for name in ("results", "models")]
        files = chain.from_iterable(folder.rglob("*") for folder in folders)
        return {
            str(path.relative_to(self.folder)): sha256_of(path)
            for path in files
            if path.is_file() and path.name not in NOT_COMPARED
        }

    def sessions(self) -> dict[str, int]:
        """Sessions of each window that stands."""
        listed = read_json(self.folder / "data" / "windows" / "windows.json")["windows"]
        return {entry["window"]: entry["sessions"] for entry in listed if entry["state"] == "kept"}

    def lay_aside(self) -> None:
        """Copy what training has finished."""
        for name in FINISHED:
            shutil.copytree(self._store / name, self.folder / "aside" / name)

    def go_back(self, *, to: str | None) -> None:
        """Have nothing finished, or what was laid aside."""
        for name in FINISHED:
            shutil.rmtree(self._store / name, ignore_errors=True)
            if to is not None:
                shutil.copytree(self.folder / to / name, self._store / name)

    @property
    def _store(self) -> Path:
        return self.folder / ".dayahead"


def _g1() -> tuple[str, Iterator[str]]:
    """The header of G1's clicks, and their lines in order of their sessions' start.

    Raises:
        SystemExit: nobody said where they are.
    """
    if "DAYAHEAD_DATA" not in os.environ:
        raise SystemExit("set DAYAHEAD_DATA to the folder that holds g1-news")
    paths = sorted(Path(os.environ["DAYAHEAD_DATA"]).glob("g1-news/clicks-*.csv.gz"))
    with gzip.open(paths[0], "rt") as file:
        header = file.readline()
    return header, chain.from_iterable(_lines(path) for path in paths)


def _lines(path: Path) -> Iterator[str]:
    """All but the header."""
    with gzip.open(path, "rt") as file:
        next(file)
        yield from file


def _start_of(line: str) -> float:
    """When a click's session started, in seconds."""
    return int(line.split(",", 3)[2]) / 1000
