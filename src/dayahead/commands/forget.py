"""`dayahead forget`: remove what this project holds about users."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dayahead.erasure.forget import Erasure

_USERS = typer.Argument(help="Ids as the source has them.", show_default=False)
_FILE = typer.Option("--file", help="A text file of ids, one a line.", show_default=False)
_DRY_RUN = typer.Option("--dry-run", help="List what would be removed; change nothing.")


def forget(
    users: Annotated[list[str] | None, _USERS] = None,
    file: Annotated[Path | None, _FILE] = None,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Remove what this project holds about users, and keep `download` from fetching them again."""
    from dayahead.config.params import load_params
    from dayahead.core.project import project_root
    from dayahead.dataset.schema import load_dataset
    from dayahead.erasure.forget import forget as forget_users
    from dayahead.erasure.out_of_reach import dvc_cache, out_of_reach

    root = project_root()
    wanted = list(dict.fromkeys([*(users or ()), *(_ids_in(file) if file else ())]))
    if not wanted:
        raise ConfigError("forget: expected ids of users, or --file with one a line")
    name = load_params(root / "params.yaml").dataset
    path = root / "datasets" / f"{name}.yaml"
    erasure = forget_users(root, path, wanted, dvc_cache(root), dry_run=dry_run)
    _print_erasure(erasure, wanted, dry_run=dry_run)
    print("\nNot reached from here:")
    print("\n".join(f"* {line}" for line in out_of_reach(root, load_dataset(name, path.parent))))
    if not dry_run:
        print(
            f"\nNext: commit datasets/{name}.yaml, then `dvc repro`, which builds the rest again."
        )
    _check(erasure)


def _ids_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected a text file in UTF-8, one id a line: {error}"
        ) from None
    return [line.strip() for line in lines if line.strip()]


def _print_erasure(erasure: "Erasure", users: list[str], *, dry_run: bool) -> None:
    for user in users:
        print(f"{user}: {erasure.holdings.rows[user]:,} rows that name the user")
    rows = [
        (place, len(found), sum(each.rows for each in found))
        for place, found in erasure.holdings.by_place().items()
    ]
    head = ("would be removed" if dry_run else "removed", "files or folders", "rows of the users")
    print(tabulate(rows, head, tablefmt="plain", intfmt=","))
    if erasure.unsearched:
        print(
            f"{erasure.unsearched:,} files or folders that cannot be searched (fetched source "
            f"files, damaged or unfinished ones) {'would go' if dry_run else 'went'} too"
        )


def _check(erasure: "Erasure") -> None:
    """End with an error where something is left, or a user was not found."""
    left = [str(each.path) for each in erasure.kept]
    problems = (
        [f"in use, so not wholly removed: {', '.join(left)}; run this again later"] if left else []
    )
    if erasure.missing:
        problems.append(
            f"no row found of {', '.join(erasure.missing)}: compare with the ids in the source, "
            f"letter by letter; data/raw must be there (`dvc pull`) to know the sessions of a user"
        )
    if problems:
        raise DataError("; ".join(problems))
