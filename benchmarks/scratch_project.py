"""A scratch copy of the project, also with hours of G1, whose stages run as DVC runs them."""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, dropwhile, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from dayahead.core.files import read_json
from dayahead.core.fingerprints import sha256_of

PROJECT = Path(__file__).parents[1]
COPIED = ("src", "stages", "datasets", "dvc.yaml", "params.yaml", "requirements.txt")
NOT_COMPARED = {"timing.csv", "phases", "report.html"}
"""Outputs with clock times."""
CACHED = ("fits", "evaluations")
"""Folders of the cache that training fills."""
Settings = Mapping[str, Mapping[str, Any]]
"""Values by section and name."""


class StageCost(NamedTuple):
    """What a stage took."""

    seconds: float
    gib: float
    """Peak resident memory of the largest of its processes."""


@dataclass(frozen=True)
class ScratchProject:
    """A folder with the project's source, its settings and a cache of its own."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, settings: Settings) -> "ScratchProject":
        """Copy the project and change its settings; there are no clicks yet."""
        for name in COPIED:
            copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copyfile
            copy(PROJECT / name, folder / name)
        project = cls(folder)
        project.set("params.yaml", {"dataset": "g1", **settings})
        return project

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

    @contextmanager
    def changed(self, changes: Settings) -> Iterator[None]:
        """Change params.yaml for the time being, with nothing in the cache."""
        file = self.folder / "params.yaml"
        unchanged = file.read_text()
        self.set(file.name, changes)
        self.clear_cache()
        try:
            yield
        finally:
            file.write_text(unchanged)

    def add_clicks(self, begin: datetime, end: datetime) -> None:
        """Write a file of G1's sessions that start from `begin` to `end`, the new end of the log.

        Like the original's files it holds whole sessions, in order of their start.
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
        """Download and preprocess the clicks that were added, else those of the data set."""
        self.run_stage("download")
        self.run_stage("preprocess")

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that runs the project's source on the clicks that were added."""
        environment = {name: value for name, value in os.environ.items() if name != "DVC_ROOT"}
        environment["PYTHONPATH"] = "src"
        if (clicks := self.folder / "clicks").exists():
            environment["DAYAHEAD_DATA"] = str(clicks)
        return environment

    def run_stage(self, name: str) -> float:
        """Run a stage in a process of its own and return its seconds."""
        return self.measure_stage(name).seconds

    def measure_stage(self, name: str) -> StageCost:
        """Run a stage in a process of its own and return what it took."""
        start = time.perf_counter()
        with tempfile.TemporaryFile("w+") as output:
            command = [sys.executable, f"stages/{name}.py"]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - start
            if process.returncode:
                output.seek(0)
                raise SystemExit(output.read())
        return StageCost(seconds, usage.ru_maxrss / 2**20)

    def output_hashes(self) -> dict[str, str]:
        """Run `aggregate` and return the sha256 of each output without clock times, by path."""
        self.run_stage("aggregate")
        folders = [self.folder / name for name in ("results", "models")]
        files = chain.from_iterable(folder.rglob("*") for folder in folders)
        return {
            str(path.relative_to(self.folder)): sha256_of(path)
            for path in files
            if path.is_file() and NOT_COMPARED.isdisjoint(path.parts)
        }

    def session_counts(self) -> dict[str, int]:
        """Return the number of sessions of each kept window."""
        listed = read_json(self.folder / "data" / "windows" / "windows.json")["windows"]
        return {entry["window"]: entry["sessions"] for entry in listed if entry["state"] == "kept"}

    def save_cache(self) -> None:
        """Copy what `train` has cached."""
        for name in CACHED:
            shutil.copytree(self._cache / name, self.folder / "saved" / name)

    def clear_cache(self) -> None:
        """Remove what `train` has cached."""
        for name in CACHED:
            shutil.rmtree(self._cache / name, ignore_errors=True)

    def restore_cache(self) -> None:
        """Go back to the saved copy."""
        self.clear_cache()
        for name in CACHED:
            shutil.copytree(self.folder / "saved" / name, self._cache / name)

    @property
    def _cache(self) -> Path:
        return self.folder / ".dayahead"


def _g1() -> tuple[str, Iterator[str]]:
    """Return the header of G1's clicks, and their lines in order of their sessions' start.

    Raises:
        SystemExit: DAYAHEAD_DATA is not set.
    """
    if "DAYAHEAD_DATA" not in os.environ:
        raise SystemExit("set DAYAHEAD_DATA to the folder that holds g1-news")
    paths = sorted(Path(os.environ["DAYAHEAD_DATA"]).glob("g1-news/clicks-*.csv.gz"))
    with gzip.open(paths[0], "rt") as file:
        header = file.readline()
    return header, chain.from_iterable(_lines(path) for path in paths)


def _lines(path: Path) -> Iterator[str]:
    """Yield all lines but the header."""
    with gzip.open(path, "rt") as file:
        next(file)
        yield from file


def _start_of(line: str) -> float:
    """Return when a click's session started, in Unix seconds."""
    return int(line.split(",", 3)[2]) / 1000
