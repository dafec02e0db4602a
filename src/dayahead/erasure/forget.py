"""Remove what a project holds about users, and name what it cannot reach."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.cache import KINDS, Cache
from dayahead.core.errors import BusyError
from dayahead.core.files import remove_tree
from dayahead.erasure.holdings import OUTPUTS, Holding, Holdings, find_holdings
from dayahead.erasure.suppression import suppress_users

LOCKS = ("download", "preprocess", "train", "aggregate", "nightly")
"""Of the processes that write what is removed."""


@dataclass(frozen=True)
class Erasure:
    """What was found and, unless nothing was to be changed, removed."""

    holdings: Holdings
    missing: Sequence[str]
    """Users of whom no row was found."""
    kept: Sequence[Holding]
    """What another process uses."""
    downloads: int
    """Fetched source files in the cache, which are not searched and go all."""


def forget(
    root: Path, dataset: Path, users: Collection[str], dvc_cache: Path, *, dry_run: bool
) -> Erasure:
    """Remove all that holds a row of the users or of their sessions, unless `dry_run`.

    They are put on the list of the data set's file first, so that no later `download` brings them
    back: those too of whom nothing was found, for a source may hold them.

    Raises:
        BusyError: a stage or a night is at work here.
        ConfigError: the data set's file names no column of users.
    """
    with _no_stage_running(root):
        if not dry_run:
            suppress_users(dataset, users)
        holdings = find_holdings(root, users, dvc_cache)
        downloads = Cache(root / ".dayahead" / "downloads")
        fetched = [path for path in downloads.folder.glob("*") if path.name != "locks"]
        kept = []
        if not dry_run:
            kept = [each for each in holdings.found if not _is_removed(root, each)]
            for path in fetched:
                downloads.discard(path)
    missing = [user for user in users if not holdings.rows[user]]
    return Erasure(holdings, missing, kept, len(fetched))


def _is_removed(root: Path, holding: Holding) -> bool:
    if holding.place in OUTPUTS:
        shutil.rmtree(holding.path.resolve(), ignore_errors=True)  # it may be a link to a disk
        remove_tree(holding.path)
        return not holding.path.exists()
    kind = holding.path.parent.name
    if holding.place == f".dayahead/{kind}" and kind in KINDS:
        return Cache(root / ".dayahead" / kind).discard(holding.path)
    holding.path.unlink(missing_ok=True)
    return True


@contextmanager
def _no_stage_running(root: Path) -> Iterator[None]:
    folder = root / ".dayahead"
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        for name in LOCKS:
            try:
                held.enter_context(FileLock(folder / f"{name}.lock", blocking=False))
            except Timeout:
                raise BusyError(
                    f"{root}: {name} is running here; wait for it, and run this again"
                ) from None
        yield
