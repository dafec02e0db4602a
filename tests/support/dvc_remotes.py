"""DVC projects with a remote, and the cache entries that tests send there."""

import json
from pathlib import Path

from dayahead.core.cache import Cache
from dayahead.sharing.remote import Remote, open_remote

FITS, EVALUATIONS = "fits", "evaluations"


def dvc_project(folder: Path, *lines: str, **remotes: str) -> Path:
    """A DVC project without Git, with remotes by name; the first one is the default."""
    (folder / ".dvc").mkdir(parents=True)
    default = [f"remote = {next(iter(remotes))}"] if remotes else []
    text = ["[core]", "no_scm = true", "analytics = false", *default]
    for name, url in remotes.items():
        text += [f"['remote \"{name}\"']", f"url = {url}", *lines]
    (folder / ".dvc" / "config").write_text("\n".join(text))
    return folder


def folder_remote(folder: Path) -> Remote:
    """A remote in a folder, opened afresh: a remote lists its files once."""
    project = folder / "project"
    if not project.exists():
        dvc_project(project, store=str(folder / "store"))
    return open_remote(project)


def put(root: Path, kind: str, key: str, **files: str) -> tuple[str, str]:
    """Put an entry of JSON files into a cache; return it."""

    def build(folder: Path) -> None:
        for name, text in files.items():
            (folder / "ranks").mkdir(exist_ok=True)
            (folder / "ranks" / f"{name}.json").write_text(text)

    Cache(root / kind).put(key, build)
    return kind, key


def content(root: Path, entry: tuple[str, str]) -> dict[str, str] | None:
    """Texts of a verified entry's files by name; None if there is none."""
    kind, key = entry
    return Cache(root / kind).get(
        key, lambda folder: {path.stem: path.read_text() for path in folder.glob("ranks/*")}
    )


def change_manifest(path: Path, change) -> None:
    """Change the JSON of a manifest in place."""
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
