"""Folders as remotes whose content is damaged or made to do harm, one entry in each."""

import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dayahead.core.fingerprints import fingerprint, sha256_of

LARGE = 3 << 30
"""Bytes of a sparse file, which take no space on the disk."""


@dataclass(frozen=True)
class Victim:
    """The entry of a remote that a case changes."""

    store: Path
    kind: str
    key: str
    outside: Path
    """A folder that no pull may change, or read into the cache."""
    random: random.Random

    @property
    def manifest(self) -> Path:
        return self.store / self.kind / f"{self.key}.json"

    def read(self) -> dict:
        return json.loads(self.manifest.read_text())

    def file(self) -> Path:
        """The content of one of its files, at random."""
        files = sorted(file["sha256"] for file in self.read()["files"].values())
        return self.store / "files" / self.random.choice(files)

    def change_files(self, change: Callable[[dict], None]) -> None:
        """Change what the manifest lists; its fingerprint is right again."""
        manifest = self.read()
        change(manifest["files"])
        manifest["fingerprint"] = fingerprint(manifest["files"])
        self.manifest.write_text(json.dumps(manifest))

    def rename(self, name: str) -> None:
        def change(files: dict) -> None:
            files[name] = files.pop(self.random.choice(sorted(files)))

        self.change_files(change)

    def resize(self, n_bytes: object) -> None:
        def change(files: dict) -> None:
            files[self.random.choice(sorted(files))]["bytes"] = n_bytes

        self.change_files(change)

    def write(self, text: str | bytes) -> None:
        self.manifest.write_bytes(text.encode() if isinstance(text, str) else text)

    def replace_file(self, make: Callable[[Path], object]) -> None:
        path = self.file()
        path.unlink()
        make(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGE)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(here)


def _growing(victim: Victim) -> None:
    """A file whose content and length change for a second."""
    path = victim.file()
    text = path.read_bytes()

    def write() -> None:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            path.write_bytes(text * victim.random.randrange(1, 1000))
            path.write_bytes(text[:-1])

    threading.Thread(target=write, daemon=True).start()


def _vanishing(victim: Victim) -> None:
    path = victim.file()
    threading.Timer(victim.random.uniform(0, 0.02), path.unlink).start()


def _one_file_often(victim: Victim) -> None:
    def change(files: dict) -> None:
        [file, *_] = files.values()
        files.update({f"ranks/copy-{n}.json": file for n in range(200)})

    victim.change_files(change)


def _two_sizes(victim: Victim) -> None:
    def change(files: dict) -> None:
        [file, *_] = files.values()
        files["ranks/other.json"] = {**file, "bytes": file["bytes"] + 1}

    victim.change_files(change)


def _beside(name: str) -> Callable[[Victim], None]:
    """A second file whose name collides with that of the first."""

    def case(victim: Victim) -> None:
        def change(files: dict) -> None:
            [(first, file), *_] = files.items()
            files[name.format(first=first, upper=first.upper()[:-5])] = file

        victim.change_files(change)

    return case


def _duplicate_keys(victim: Victim) -> None:
    [(name, file), *_] = victim.read()["files"].items()
    twice = f'{{"files": {{"{name}": {json.dumps(file)}, '
    victim.write(victim.manifest.read_text().replace('{"files": {', twice).replace("\n", " "))


def _planted(victim: Victim, name: str) -> None:
    there = victim.outside.parent / "there" / victim.kind
    there.mkdir(parents=True, exist_ok=True)
    (there / name.format(key=victim.key)).symlink_to(victim.outside)


def _extra(victim: Victim) -> None:
    (victim.store / "files" / f".{victim.random.getrandbits(64):x}").write_text("half")
    (victim.store / victim.kind / "..json").write_text("{}")
    (victim.store / victim.kind / "line\nbreak.json").write_text("{}")
    (victim.store / "files" / os.fsdecode(b"\xff\xfe")).write_text("x")


def _flip(victim: Victim) -> None:
    path = victim.file()
    content = bytearray(path.read_bytes())
    content[victim.random.randrange(len(content))] ^= 1 << victim.random.randrange(8)
    path.write_bytes(content)


def _cut(victim: Victim) -> None:
    path = victim.file()
    path.write_bytes(path.read_bytes()[: -victim.random.randint(1, 3)])


def _unreadable(victim: Victim) -> None:
    path = victim.random.choice([victim.file(), victim.manifest])
    path.chmod(0)


def _outside(victim: Victim) -> str:
    return str(victim.outside / "planted.json")


def _up(victim: Victim) -> str:
    depth = victim.random.randrange(1, 9)
    return victim.random.choice(["", "ranks/"]) + "../" * depth + "outside/planted.json"


CASES: dict[str, Callable[[Victim], object]] = {
    "a size above the file's": lambda v: v.resize(v.random.choice([1 << 10, 1 << 40, 1 << 62])),
    "a size below the file's": lambda v: v.resize(v.random.choice([0, 1])),
    "a file of 3 GiB": lambda v: v.replace_file(_sparse),
    "a flipped bit": _flip,
    "a file cut off": _cut,
    "a missing file": lambda v: v.file().unlink(),
    "a file that vanishes": _vanishing,
    "a file that changes": _growing,
    "names above the entry": lambda v: v.rename(_up(v)),
    "absolute names": lambda v: v.rename(_outside(v)),
    "backslashes": lambda v: v.rename("..\\outside\\planted.json"),
    "control characters": lambda v: v.rename(f"x{chr(v.random.choice([0, 10, 13, 27]))}.json"),
    "a lone surrogate": lambda v: v.rename("x\ud800.json"),
    "a long name": lambda v: v.rename("x" * v.random.choice([251, 5000]) + ".json"),
    "a deep name": lambda v: v.rename("x/" * v.random.choice([200, 3000]) + "x.json"),
    "a name of code": lambda v: v.rename(v.random.choice(["a.pkl", "a.py", "a.so", "a.pt"])),
    "the name of the list": lambda v: v.rename("contents.json"),
    "names that differ by case": _beside("{upper}.json"),
    "a file that is a folder": _beside("{first}/x.json"),
    "names of one file": _one_file_often,
    "two sizes of one file": _two_sizes,
    "a link to a file outside": lambda v: v.replace_file(
        lambda path: path.symlink_to(v.outside / "mine.json")
    ),
    "a link to /dev/zero": lambda v: v.replace_file(lambda path: path.symlink_to("/dev/zero")),
    "a loop of links": lambda v: v.replace_file(lambda path: path.symlink_to(path)),
    "a pipe": lambda v: v.replace_file(os.mkfifo),
    "a device": lambda v: v.replace_file(_device),
    "a socket": lambda v: v.replace_file(_socket),
    "a folder": lambda v: v.replace_file(Path.mkdir),
    "no permission": _unreadable,
    "a manifest that is a pipe": lambda v: (v.manifest.unlink(), os.mkfifo(v.manifest)),
    "a manifest that is a device": lambda v: (v.manifest.unlink(), _device(v.manifest)),
    "a manifest of 3 GiB": lambda v: _sparse(v.manifest),
    "a deep manifest": lambda v: v.write('{"files":' * 10_000),
    "a deep list": lambda v: v.write("[" * 100_000),
    "no JSON": lambda v: v.write(v.random.randbytes(v.random.randrange(1000))),
    "other JSON": lambda v: v.write(v.random.choice(["null", "[]", "7", '"x"', "{}", ""])),
    "NaN": lambda v: v.write(v.manifest.read_text().replace('"bytes": ', '"bytes": NaN')),
    "odd sizes": lambda v: v.resize(
        v.random.choice([-1, 1.5, "1", None, True, 1 << 63, 10**400, [1]])
    ),
    "an empty manifest": lambda v: v.change_files(dict.clear),
    "a wrong fingerprint": lambda v: v.write(v.manifest.read_text().replace("ranks/", "rank/")),
    "another key": lambda v: v.write(v.manifest.read_text().replace('"files"', '"file"')),
    "duplicate keys": _duplicate_keys,
    "extra files": _extra,
    "a planted link: partial": lambda v: _planted(v, ".{key}.partial"),
    "a planted link: damaged": lambda v: _planted(v, "{key}.damaged"),
}


def listed(folder: Path) -> dict[str, str]:
    """Every file below a folder with its content."""
    return {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
