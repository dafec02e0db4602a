"""`dayahead inspect`: a data set file for an unknown log."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_text
from dayahead.core.project import project_root

if TYPE_CHECKING:
    from dayahead.inspection.log import Inspection

_FILES = typer.Argument(metavar="FILE...", help="Files of the log, or globs.")
_ITEMS = typer.Option(
    metavar="FILE", help="Files of a table of items, or globs; repeat it.", show_default=False
)
_NAME = typer.Option(help="Name of the data set; otherwise that of the file.", show_default=False)
_FORCE = typer.Option("--force", help="Write over datasets/NAME.yaml.")
_DRY_RUN = typer.Option("--dry-run", help="Print the data set file; write nothing.")


def inspect(
    files: Annotated[list[str], _FILES],
    items: Annotated[list[str] | None, _ITEMS] = None,
    name: Annotated[str | None, _NAME] = None,
    force: Annotated[bool, _FORCE] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Look at a log, say what it holds, and write a data set file that runs."""
    from dayahead.inspection.log import inspect_log

    name = name or _name_of(files[0])
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ConfigError(f"--name {name}: expected letters, digits, _ . and -")
    path = project_root() / "datasets" / f"{name}.yaml"
    if path.exists() and not (force or dry_run):
        raise ConfigError(f"{path}: exists; take another --name, or --force to write over it")
    found = inspect_log(files, name, items or [])
    _show(found)
    if dry_run:
        print(f"\n{found.text}", end="")
        return
    path.parent.mkdir(exist_ok=True)
    write_text(path, found.text)
    _check(name, path)
    print(f"\n{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}: written")
    print(f"Next: {' '.join([f'dvc exp run -q -S dataset={name}', *found.options])}")
    print(f"then: git add params.yaml dvc.lock datasets/{name}.yaml && git commit -m {name}")


def _name_of(file: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", Path(file).name.partition(".")[0]).strip("_") or "log"


def _check(name: str, path: Path) -> None:
    from dayahead.dataset.schema import load_dataset

    load_dataset(name, path.parent)


def _show(found: "Inspection") -> None:
    print(f"Read {found.read}.\n")
    print(tabulate(found.columns, ("column", "type", "empty", "different"), tablefmt="plain"))
    print()
    rows = [(each.key, each.value[:60], each.confidence, each.reason) for each in found.findings]
    print(tabulate(rows, ("setting", "value", "", "why"), tablefmt="plain", disable_numparse=True))
    for each in found.findings:
        if each.reason.startswith("NOT KNOWN"):
            print(f"\nCheck {each.key}: {each.value}: {each.reason}")
    windows = found.windows
    print(
        f"\nAbout {windows.sessions:,} sessions of two clicks or more in {windows.shown}, "
        f"which makes some {windows.n:,} windows."
    )
